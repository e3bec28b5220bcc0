# The official image with a diff of your own, which lies beside this file.
FROM vllm/vllm-openai:v0.11.0
RUN pip install vllm-patcher
COPY fix-scheduler.patch /tmp/
RUN vllm-patch apply /tmp/fix-scheduler.patch && vllm-patch verify /tmp/fix-scheduler.patch
