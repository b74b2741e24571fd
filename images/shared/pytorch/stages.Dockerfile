# Docker makes and keeps one layer for all engines.  pip runs from its own wheel and is dropped again.  Bytecode is made here,
# once, never checked against file times: the root is read-only at run time.  (py312_*: tests in syntax newer than this Python.)
FROM ${BASE} AS pytorch-whole
COPY packages/pytorch /build
RUN PYTHONPATH=$(echo /build/wheels/pip-*.whl) python3 -m pip install --quiet --root-user-action=ignore --no-cache-dir --no-compile \
      --no-index --no-deps --require-hashes --find-links /build/wheels --target /opt/pytorch/packages -r /build/requirements.lock \
 && cd /opt/pytorch/packages \
 && rm -rf pip pip-* share torch/share torch/test isympy.py \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && find . -name '*.pyi' -delete \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/py312_' /opt/pytorch

# Without what only compiling needs.
FROM pytorch-whole AS pytorch
RUN cd /opt/pytorch/packages \
 && rm -rf bin torch/include nvidia/cu13/bin nvidia/cu13/include nvidia/cu13/nvvm \
 && find torch/bin -type f ! -name torch_shm_manager -delete
