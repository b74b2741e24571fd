# Of OpenVINO the CPU plugin and the readers of ONNX and of its own format are kept; of transformers all
# configurations and tokenizers, and the models that an engine reads (KINDS in shared/encoder/config.py; t5).
# Dropped too: what command lines and downloads import.
# A prepared encoder under ONNX Runtime or OpenVINO needs /opt/encoder/packages alone, and so does making a plain BERT
# ready; PyTorch, and making the others ready, need all three.
FROM ${BASE} AS encoder
COPY packages/encoder /build
RUN PYTHONPATH=$(echo /build/wheels/pip-*.whl) python3 -m pip install --quiet --root-user-action=ignore --no-cache-dir --no-compile \
      --no-index --no-deps --require-hashes --find-links /build/wheels --target /opt/encoder/full -r /build/requirements.lock \
 && cd /opt/encoder/full \
 && rm -rf bin share pip pip-* onnx/backend/test openvino/include openvino/cmake onnxruntime/capi/libonnxruntime.so* \
      hf_xet* openvino_telemetry* \
      typer* shellingham* annotated_doc* rich* pygments* markdown_it* mdurl* \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && find . -name '*.pyi' -delete \
 && find transformers/models -mindepth 2 -name '*.py' ! -regex '.*/\(__init__\|configuration_.*\|tokenization_.*\)[.]py' \
      ! -regex 'transformers/models/\(auto\|bert\|big_bird\|deberta_v2\|distilbert\|dpr\|electra\|encoder_decoder\|ernie\|llama\|longformer\|modernbert\|mpnet\|roberta\|t5\|xlm_roberta\)/.*' -delete \
 && mkdir ../packages \
 && mv numpy numpy.libs numpy-* packaging packaging-* tokenizers tokenizers-* onnxruntime onnxruntime-* openvino openvino-* \
      onnx onnx-* ml_dtypes ml_dtypes-* google protobuf-* safetensors safetensors-* typing_extensions* ../packages \
 && cd ../packages/openvino/libs \
 && rm -f cache.json libopenvino_intel_gpu_plugin.so libopenvino_intel_npu_plugin.so \
      libopenvino_jax_frontend.so* libopenvino_paddle_frontend.so* libopenvino_tensorflow*_frontend.so* \
      libopenvino_gguf_frontend.so* libopenvino_pytorch_frontend.so* \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/encoder/packages

FROM ${BASE} AS lean
COPY --from=encoder /opt/encoder/packages /opt/encoder/packages

# What lean images leave out has its bytecode made here: a third of the work.
FROM encoder AS encoder-full
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/py312_' /opt/encoder/full

FROM ${BASE} AS full
COPY --from=pytorch /opt/pytorch /opt/pytorch
COPY --from=encoder-full /opt/encoder /opt/encoder
