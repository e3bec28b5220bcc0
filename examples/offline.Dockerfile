# A build without a network. The tool and what it needs lie as wheels in wheelhouse/ beside this
# file; fill it once, where there is a network, for the Python of the image:
#   pip download --only-binary :all: --python-version 3.12 --dest wheelhouse vllm-patcher
# The folder is mounted and not copied, so that no layer keeps the wheels.
FROM vllm/vllm-openai:v0.11.0
RUN --mount=type=bind,source=wheelhouse,target=/wheelhouse \
    pip install --no-index --find-links /wheelhouse vllm-patcher
RUN vllm-patch apply && vllm-patch verify
