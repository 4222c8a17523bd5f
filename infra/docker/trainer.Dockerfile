# One machine of a training job under torchrun; PyPI's torch brings CUDA, the host brings the driver.
# docker build -f infra/docker/trainer.Dockerfile -t cliptune-trainer:latest .
FROM python:3.11.14-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    DO_NOT_TRACK=1 \
    CLIPTUNE_HOME=/app \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends git g++ && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 cliptune && \
    install --directory --owner=cliptune /app

WORKDIR /app
COPY requirements/main.txt requirements/
RUN pip install --no-deps --requirement requirements/main.txt

COPY --chown=cliptune . .
# Volumes take the owner of the folder that they are mounted over. All workers share one dvc.lock, in the volume `state`.
RUN pip install --no-deps --editable . && \
    install --directory --owner=cliptune data models reports state .dvc/cache .dvc/tmp mlruns && \
    ln --symbolic --force state/dvc.lock dvc.lock

USER 1000
# torchrun's own options and the method come from the job: see infra/kubernetes/torchrun/.
ENTRYPOINT ["torchrun"]
CMD ["--standalone", "--nproc-per-node=gpu", "-m", "components.training.train", "--method", "paraclip"]
