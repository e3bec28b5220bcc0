# A server without rights that starts only if its vLLM is patched.
# Patches go in as root, who owns the files; anyone may verify. entrypoint.sh lies beside this file.
FROM vllm/vllm-openai:v0.11.0
RUN pip install vllm-patcher
RUN vllm-patch apply
COPY --chmod=755 entrypoint.sh /usr/local/bin/
USER 2000
# What is given to `docker run IMAGE …` still goes to the server.
ENTRYPOINT ["entrypoint.sh", "vllm", "serve"]
