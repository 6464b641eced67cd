# Two images from one file: `server` has no torch, `worker` has no SQLAlchemy.
#   docker build --target server -t finishline-server .
#   docker build --target worker -t finishline-worker .

FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 MALLOC_ARENA_MAX=2
RUN useradd --create-home --uid 10001 finishline \
    && install -d -o finishline /app/var /run/finishline
WORKDIR /app
COPY constraints.txt ./

# The small bundle of Plotly; the server serves it in place of the one in Python's plotly.
FROM node:22-slim AS charts
WORKDIR /charts
COPY package.json ./
RUN npm install --no-package-lock --no-audit --no-fund --ignore-scripts --omit=dev

FROM base AS server
COPY --from=charts /charts/node_modules ./node_modules
COPY pyproject.toml README.md alembic.ini ./
COPY rules/ ./rules/
COPY server/ ./server/
COPY web/ ./web/
COPY cli/ ./cli/
COPY finishline/ ./finishline/
COPY migrations/ ./migrations/
COPY benchmarks/ ./benchmarks/
COPY docs/ ./docs/
RUN pip install -c constraints.txt -e .
USER finishline
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["python", "-m", "uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000", "--timeout-graceful-shutdown", "5", "--no-access-log", "--http", "server.limits.protocol:BoundedHttpProtocol"]

FROM base AS worker
COPY deploy/worker-requirements.txt ./
RUN pip install -c constraints.txt -r worker-requirements.txt
COPY rules/ ./rules/
COPY worker/ ./worker/
COPY reference_models/ ./reference_models/
USER finishline
CMD ["python", "-m", "worker"]
