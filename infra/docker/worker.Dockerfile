# A Prefect worker that runs flows in this image: python, the locked packages, the checkout, git for provenance.
# docker build -f infra/docker/worker.Dockerfile -t cliptune-worker:latest .
FROM python:3.11.14-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    GX_ANALYTICS_ENABLED=false \
    DO_NOT_TRACK=1 \
    CLIPTUNE_HOME=/app

SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# git: commits are part of every run's record. g++: torch compiles with it.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends git g++ && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 cliptune && \
    install --directory --owner=cliptune /app

WORKDIR /app
COPY requirements/main.txt requirements/
# The lock is complete: nothing is resolved anew. It holds what tests need too, as its versions are those that were tested.
RUN pip install --no-deps --requirement requirements/main.txt

COPY --chown=cliptune . .
# Volumes take the owner of the folder that they are mounted over. All workers share one dvc.lock, in the volume `state`.
RUN pip install --no-deps --editable . && \
    install --directory --owner=cliptune data models reports state .dvc/cache .dvc/tmp mlruns && \
    ln --symbolic --force state/dvc.lock dvc.lock

USER 1000
CMD ["prefect", "worker", "start", "--pool", "local", "--type", "process"]
