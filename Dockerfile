# Two stages: the first makes a virtual environment from hash-locked wheels, the second runs it.
FROM python:3.13-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/palimpsest
# Alone, so that a change of the code installs nothing again.
COPY requirements.lock ./
RUN /opt/palimpsest/bin/python -m pip install --require-hashes --only-binary=:all: -r requirements.lock
COPY pyproject.toml README.md LICENSE config.example.yaml ./
COPY app ./app
COPY migrations ./migrations
RUN /opt/palimpsest/bin/python -m pip install --no-deps --no-build-isolation --no-index . \
    && /opt/palimpsest/bin/python -m pip uninstall --yes hatchling editables packaging pathspec pluggy tomlkit trove-classifiers pip

FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="Palimpsest" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="An OpenAI-compatible proxy that keeps every conversation and compacts what the model sees"
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
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
# exec: the proxy itself gets the stop signal, and finishes what is under way.
CMD ["sh", "-c", "palimpsest migrate && exec palimpsest serve"]
