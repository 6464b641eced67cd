# Three images from one file: `server` has no torch, `worker` no SQLAlchemy, `store` is the
# S3-compatible store of docker-compose.yml.
#   docker build --target server -t finishline-server .
#   docker build --target worker -t finishline-worker .
# They run with a root file system that is read-only; what they write lies below /app/var and /tmp.

FROM python:3.11.14-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp PATH=/opt/finishline/bin:$PATH
# Threads share two heaps, and what a large request took is given back: memory stays flat under load.
ENV MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072
RUN useradd --no-create-home --uid 10001 finishline \
    && install -d -m 700 -o finishline -g finishline /app/var /run/finishline /copies
WORKDIR /app

# Installing happens in stages that are left behind, with whatever tools it takes.
FROM base AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/finishline
COPY constraints.txt ./

FROM builder AS server-builder
COPY pyproject.toml setup.py README.md LICENSE ./
COPY finishline/ ./finishline/
COPY server/ ./server/
COPY web/ ./web/
COPY migrations/ ./migrations/
COPY benchmarks/ ./benchmarks/
COPY docs/ ./docs/
COPY examples/ ./examples/
# Editable: the program runs from /app, where its benchmarks, documents and migrations lie.
RUN pip install -c constraints.txt -e ./finishline -e ".[export,s3]" && python -m compileall -q /app

FROM base AS server
# pg_dump and pg_restore in the version of the database, from PostgreSQL's own packages.
RUN apt-get update && apt-get install -y --no-install-recommends postgresql-common ca-certificates \
    && /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y \
    && apt-get install -y --no-install-recommends postgresql-client-18 && rm -rf /var/lib/apt/lists/*
COPY --from=server-builder /opt/finishline /opt/finishline
COPY --from=server-builder /app /app
RUN chown finishline:finishline /app/var
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["python", "-m", "uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000", "--timeout-graceful-shutdown", "5", "--no-access-log", "--proxy-headers", "--http", "server.operations.limits:BoundedHttpProtocol"]

FROM builder AS worker-builder
COPY deploy/worker-requirements.txt ./
RUN pip install -c constraints.txt -r worker-requirements.txt

FROM base AS worker
COPY --from=worker-builder /opt/finishline /opt/finishline
COPY finishline/ ./finishline/
COPY worker/ ./worker/
COPY reference_models/ ./reference_models/
USER 10001:10001
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(os.environ['FINISHLINE_SERVER_URL'] + '/healthz', timeout=4)"]
CMD ["python", "-m", "worker"]

# Garage's own image has no shell, and its key is to be read from a file.
FROM dxflrs/garage:v2.4.1 AS garage
FROM debian:12.12-slim AS store
COPY --from=garage /garage /usr/local/bin/garage
COPY deploy/start-store.sh /usr/local/bin/start-store
RUN install -d -o 10001 -g 10001 /var/lib/garage
USER 10001:10001
EXPOSE 3900
HEALTHCHECK --interval=10s --timeout=5s CMD ["garage", "status"]
CMD ["sh", "/usr/local/bin/start-store"]
