"""A folder that vLLM's pooling runner serves: `vllm serve exported --runner pooling`."""

from dataclasses import replace

from components.registry.formats import huggingface

FORMAT = replace(
    huggingface.FORMAT,
    name="vllm",
    usage=(
        "# vllm serve {folder} --runner pooling --served-model-name text-encoder\n"
        "from openai import OpenAI\n"
        'client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="-")\n'
        'vector = client.embeddings.create(model="text-encoder", input="a child on a couch").data[0].embedding'
    ),
)
