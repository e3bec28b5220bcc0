# The official image with a diff of your own, which lies beside this file.
# verify names the diff too: a vLLM that a later line upgrades or reinstalls has lost the patch and
# the receipt with it, and a verify without names would not know that anything is missing.
FROM vllm/vllm-openai:v0.11.0
RUN pip install vllm-patcher
COPY fix-scheduler.patch /tmp/
RUN vllm-patch apply /tmp/fix-scheduler.patch && vllm-patch verify /tmp/fix-scheduler.patch
