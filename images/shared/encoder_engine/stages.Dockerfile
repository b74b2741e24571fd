# An engine over the encoder: its packages, its environment and all shared code; NAME is its folder below /opt.
FROM ${BASE} AS engine-packages
ARG NAME
COPY wheels /build/wheels
COPY requirements.lock /build/
RUN PYTHONPATH=$(echo /build/wheels/pip-*.whl) python3 -m pip install --quiet --root-user-action=ignore --no-cache-dir --no-compile \
      --no-index --no-deps --require-hashes --find-links /build/wheels --target /opt/${NAME}/packages -r /build/requirements.lock \
 && cd /opt/${NAME}/packages \
 && rm -rf bin pip pip-* \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/${NAME}/packages

FROM ${STAGE} AS encoder-engine
ARG NAME
ENV LANG=C.UTF-8 \
    PYTHONPATH=/opt/harness:/opt/shared:/opt/${NAME}:/opt/${NAME}/packages:/opt/encoder/packages:/opt/encoder/full:/opt/pytorch/packages \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=1 \
    TRANSFORMERS_OFFLINE=1 \
    HF_HUB_DISABLE_PROGRESS_BARS=1 \
    HF_HOME=/tmp/huggingface \
    TORCHINDUCTOR_CACHE_DIR=/tmp/torchinductor
COPY --from=engine-packages /opt/${NAME}/packages /opt/${NAME}/packages
COPY assets/engine /opt/assets
COPY shared /opt/shared
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/shared
