# Docker makes the jar once for all engines that run Anserini.
FROM ${BASE} AS anserini
COPY shared/jvm/slim_jar.py /build/
COPY assets/engine /build/assets
RUN mkdir -p /opt/assets/anserini && python3 /build/slim_jar.py /build/assets/anserini /opt/assets/anserini
