# An environment that is made in one stage and served from another, by a user without rights.
FROM python:3.11 AS build
RUN pip install uv
ENV UV_COMPILE_BYTECODE=1
RUN uv venv /opt/.venv && uv pip install --python /opt/.venv vllm==0.11.0 vllm-patcher
RUN /opt/.venv/bin/vllm-patch apply

FROM python:3.11
COPY --from=build /opt/.venv /opt/.venv
USER 2000
RUN /opt/.venv/bin/vllm-patch verify
