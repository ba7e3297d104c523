# `docker build .` makes the image, `docker build --target debug .` one with tools to look around.
#
# Base images are pinned by version, not by digest: a digest pins their known holes, too, unless something
# updates it. What is installed on them is pinned by hash, in requirements.lock.
ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/palimpsest
# Alone, so that a change of the code installs nothing again.
COPY requirements.lock ./
RUN /opt/palimpsest/bin/python -m pip install --require-hashes --only-binary=:all: -r requirements.lock
COPY pyproject.toml README.md LICENSE config.example.yaml ./
COPY app ./app
COPY migrations ./migrations
# What only builds it goes again, and so does pip.
RUN /opt/palimpsest/bin/python -m pip install --no-deps --no-build-isolation --no-index . \
    && /opt/palimpsest/bin/python -m pip uninstall --yes hatchling editables packaging pathspec pluggy tomlkit trove-classifiers pip

FROM python:${PYTHON} AS runtime
ENV PATH=/opt/palimpsest/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PALIMPSEST_SERVER__HOST=0.0.0.0 \
    PALIMPSEST_SERVER__PORT=8000 \
    PALIMPSEST_DATABASE__URL=sqlite:////data/palimpsest.db \
    PALIMPSEST_DATABASE__DATA_FOLDER=/data
# A number, so that an orchestrator can see that it is not root.
RUN groupadd --gid 10001 palimpsest \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin palimpsest \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/palimpsest /opt/palimpsest
USER 10001:10001
WORKDIR /data
# The database and the pepper: lose neither.
VOLUME ["/data"]
EXPOSE 8000
# The proxy finishes what is under way: server.shutdown_seconds. Give it that time before a kill.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['PALIMPSEST_SERVER__PORT'] + '/healthz', timeout=4)"]
# exec: the proxy itself gets the stop signal.
CMD ["sh", "-c", "palimpsest db migrate && exec palimpsest serve"]
# Last, so that a new revision leaves every layer above as it was. The release workflow gives the values.
ARG VERSION=unreleased
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Palimpsest" \
      org.opencontainers.image.description="An OpenAI-compatible proxy that keeps every conversation and compacts what the model sees" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"

# The same program, with tools to look at its processes, its sockets and its database.
FROM runtime AS debug
USER 0:0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends curl procps sqlite3 strace \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001

# The last one is what a build without a target makes.
FROM runtime
