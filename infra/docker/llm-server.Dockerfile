# vLLM's OpenAI-compatible server, in the locked versions that the engine `server` was tested against. It has an environment
# of its own: vLLM excludes the web stack that Prefect needs.
# docker build -f infra/docker/llm-server.Dockerfile -t cliptune-llm-server:latest .
FROM python:3.11.14-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    DO_NOT_TRACK=1 \
    VLLM_NO_USAGE_STATS=1 \
    HF_HOME=/models \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# gcc: vLLM compiles kernels at its first start.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install --yes --no-install-recommends gcc g++ && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 vllm && \
    install --directory --owner=vllm /models

WORKDIR /app
COPY requirements/llm-server.txt requirements/
RUN pip install --no-deps --requirement requirements/llm-server.txt

USER 1000
EXPOSE 8000
# The key that clients must show comes from VLLM_API_KEY; the model from the command.
ENTRYPOINT ["python", "-m", "vllm.entrypoints.openai.api_server", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--model", "microsoft/phi-4"]
