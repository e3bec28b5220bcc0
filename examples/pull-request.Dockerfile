# The official image with a pull request that no release has yet. Its diff lies beside this file:
#   curl -fL -o pr-12345.diff https://github.com/vllm-project/vllm/pull/12345.diff
# (12345 stands for yours; the file here is a sample.) It is read from standard input under a name
# of its own; what it changes under tests/ is left out. Keep the file: a pull request changes.
FROM vllm/vllm-openai:v0.11.0
RUN pip install vllm-patcher
RUN --mount=type=bind,source=pr-12345.diff,target=/tmp/pr-12345.diff \
    vllm-patch apply - --id pr-12345 < /tmp/pr-12345.diff
# The diff is named again: a vLLM that was upgraded or reinstalled in between has lost the receipt
# with the patch. What only asks for the catalog's patches would not miss it.
RUN --mount=type=bind,source=pr-12345.diff,target=/tmp/pr-12345.diff \
    vllm-patch verify - --id pr-12345 < /tmp/pr-12345.diff
