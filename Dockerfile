#   docker build -t npucall-server:cpu .
#   docker build -t npucall-server:npu --target npu .
#   docker build -t npucall-test --target test .
#
# Docker 23, or 20.10 with DOCKER_BUILDKIT=1; podman 4 and buildah. No line `syntax=`: it has Docker
# fetch an image from a registry, which many labs cannot reach. Their own registry and index:
# deploy/README.md.
#
# tests/end_to_end/test_container_files.py runs the RUN lines of this file without an engine, with
# /src, /wheels and /opt/npucall moved to a temporary folder. Keep to these three paths.
# tests/containers builds and runs all of it.

# Wheels of NumPy and grpcio belong to one Python minor version, so this one holds for every stage,
# the CANN image included.
ARG PYTHON_VERSION=3.11
# A tag may be another image tomorrow; `make pin` finds the digests, for compose and --build-arg.
ARG PYTHON_IMAGE=python:${PYTHON_VERSION}-slim

# The CANN image needs Python 3.11 or newer: take a tag that ends in -py3.11 (or -py3.12, with
# PYTHON_VERSION=3.12), of the chip series of the host, e.g. 910b for Atlas A2, a3 for Atlas A3.
ARG CANN_IMAGE=ascendai/cann:8.5.0-910b-ubuntu22.04-py3.11


FROM ${PYTHON_IMAGE} AS wheels
WORKDIR /src
COPY constraints.txt ./
COPY proto proto/
COPY server server/
COPY client client/
COPY conformance conformance/
COPY exec exec/
# The only step that needs an index: pip's own, that of PIP_INDEX_URL, or what the secret `pip` says, a
# pip.conf. Neither reaches an image that runs. PIP_CONSTRAINT, unlike -c, pins the build backend as
# well. Binary wheels only: what is compiled here may not load on the older glibc of a CANN image.
ARG PIP_INDEX_URL
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    PIP_CONSTRAINT=constraints.txt pip wheel --only-binary=:all: --wheel-dir=/wheels \
    ./proto './server[auth,metrics,tracing]' './client[cli,testing]' ./conformance ./exec


# Environments are made in stages of their own and copied, which every engine can do: podman before
# 4.4 cannot mount a stage that it has in its cache. What installs does not stay.
FROM wheels AS cpu-environment
RUN python3 -m venv /opt/npucall \
    && /opt/npucall/bin/pip install --no-cache-dir --no-index --find-links=/wheels 'npucall-server[auth,metrics]' \
    && /opt/npucall/bin/pip uninstall --yes pip setuptools


FROM wheels AS test-environment
RUN python3 -m venv /opt/npucall \
    && /opt/npucall/bin/pip install --no-cache-dir --no-index --find-links=/wheels \
    npucall-server 'npucall-client[cli,testing]' npucall-conformance npucall-exec


FROM ${CANN_IMAGE} AS npu-environment
ARG PYTHON_VERSION
# hadolint ignore=DL3002
USER 0
RUN python3 -c "import sys; found = '%d.%d' % sys.version_info[:2]; \
    found == '${PYTHON_VERSION}' or sys.exit(f'CANN_IMAGE has Python {found}, not ${PYTHON_VERSION}')"
COPY --from=wheels /wheels /wheels
# A virtual environment, since the image has a NumPy and a protobuf of CANN's own. By the Python of this
# image, which may stand elsewhere than that of the others.
RUN python3 -m venv /opt/npucall \
    && /opt/npucall/bin/pip install --no-cache-dir --no-index --find-links=/wheels 'npucall-server[auth,metrics]' \
    && /opt/npucall/bin/pip uninstall --yes pip setuptools


FROM ${CANN_IMAGE} AS npu
# hadolint ignore=DL3002
USER 0
COPY --from=npu-environment /opt/npucall /opt/npucall
# The group of the device nodes (HwHiAiUser, mode 0660) is not made here: what counts is its number
# on the host, which an image cannot know. It is given at the start, as compose does:
#   docker run --group-add "$(stat -c %g /dev/davinci_manager)" ...
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp npucall \
    && install -d -o npucall -g npucall -m 0750 /var/lib/npucall
# Before CANN 8.5 the script was /usr/local/Ascend/ascend-toolkit/set_env.sh; both are tried.
ARG CANN_SET_ENV=
# The driver's folders are empty until the host's are mounted; not every set_env.sh adds them.
# PYTHONPATH is emptied for `health`, which does not pass through the entry point; see there.
ENV CANN_SET_ENV=${CANN_SET_ENV} \
    LD_LIBRARY_PATH=/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common:/usr/local/Ascend/driver/lib64/driver:${LD_LIBRARY_PATH} \
    PATH=/opt/npucall/bin:${PATH} \
    PYTHONPATH= \
    HOME=/tmp \
    NPUCALL_DEVICE=cann:0 \
    NPUCALL_LISTEN=0.0.0.0:50051 \
    NPUCALL_HEALTH_LISTEN=127.0.0.1:50061 \
    NPUCALL_INSECURE_BIND=true \
    NPUCALL_STATE_FOLDER=/var/lib/npucall
# Without a volume of a name, each container has one of its own.
VOLUME /var/lib/npucall
USER 10001:10001
EXPOSE 50051
# Opening a device takes far longer than starting Python.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["npucall-server", "health", "127.0.0.1:50061"]
# 69 is the exit code for missing libraries. -I: CANN puts its own Python packages on PYTHONPATH,
# before ours; they stay visible to what CANN starts, and out of the server.
ENTRYPOINT ["/bin/bash", "-c", "for each in /usr/local/Ascend/cann/set_env.sh /usr/local/Ascend/ascend-toolkit/set_env.sh; do [ -e \"$each\" ] && break; done; source \"${CANN_SET_ENV:-$each}\" || exit 69; exec /opt/npucall/bin/python -I -m npucall_server \"$@\"", "npucall-server"]
CMD ["serve"]


FROM ${PYTHON_IMAGE} AS test
WORKDIR /src
# The simulator of CANN is built here, and runs below a server of this image. No versions: what the
# base image's Debian has will do.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils g++ gcc \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp npucall
COPY --from=test-environment /opt/npucall /opt/npucall
COPY pyproject.toml ./
COPY tests tests/
RUN /opt/npucall/bin/python -m tests.simulator.build
# Hypothesis keeps its examples where a read-only file system lets it.
ENV PATH=/opt/npucall/bin:${PATH} \
    HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis \
    PYTHONDONTWRITEBYTECODE=1 \
    NPUCALL_TARGET=cpu:50051
USER 10001:10001
# The conformance suite is the part of the tests that can judge a server elsewhere.
ENTRYPOINT ["pytest", "-p", "no:cacheprovider"]
CMD ["tests/conformance"]


# Last, so that it is what `docker build .` makes.
FROM ${PYTHON_IMAGE} AS cpu
# What a server remembers beyond its process: its id and its account, for example. One folder a server.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp npucall \
    && install -d -o npucall -g npucall -m 0750 /var/lib/npucall
COPY --from=cpu-environment /opt/npucall /opt/npucall
# Any address inside the container; who reaches it is decided by the port's publishing. Without
# certificates there is no TLS, hence the consent to an insecure bind. Health is asked at an address
# of its own, which never has TLS.
ENV PATH=/opt/npucall/bin:${PATH} \
    NPUCALL_DEVICE=cpu \
    NPUCALL_LISTEN=0.0.0.0:50051 \
    NPUCALL_HEALTH_LISTEN=127.0.0.1:50061 \
    NPUCALL_INSECURE_BIND=true \
    NPUCALL_STATE_FOLDER=/var/lib/npucall
# Without a volume of a name, each container has one of its own.
VOLUME /var/lib/npucall
USER 10001:10001
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["npucall-server", "health", "127.0.0.1:50061"]
ENTRYPOINT ["npucall-server"]
CMD ["serve"]
