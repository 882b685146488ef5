# The image of the service, installed from the wheel that its first stage builds.
FROM python:3.12-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
COPY pyproject.toml requirements.lock README.md LICENSE /src/
RUN python -m venv /opt/causerie
RUN /opt/causerie/bin/python -m pip install --quiet --require-hashes -r /src/requirements.lock
COPY src /src/src
RUN /opt/causerie/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels /src
RUN /opt/causerie/bin/python -m pip install --quiet --no-deps --no-index --find-links /wheels causerie

FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --create-home --home-dir /data causerie
COPY --from=build /opt/causerie /opt/causerie
ENV PATH=/opt/causerie/bin:$PATH HOME=/data PYTHONUNBUFFERED=1 CAUSERIE_CONFIG=/etc/causerie/causerie.toml
USER 10001
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health/ready', timeout=2)"]
ENTRYPOINT ["causerie"]
CMD ["serve", "--host", "0.0.0.0"]
