# The engine's image, with the system's files as its own code made them ready (converted, checked) as the last layer.
# Where the ready files need fewer packages, RUNTIME is the engine's lean image.
ARG ENGINE
ARG RUNTIME
FROM ${ENGINE} AS prepared
ARG PREPARE
COPY --chown=65532:65532 assets /opt/prepared
COPY system.json /opt/system.json
# What is printed on failure is its last line: people see it.
RUN python3 -m ${PREPARE} /opt/prepared /opt/system.json \
 && find /opt/prepared -type d -exec chmod 755 {} + && find /opt/prepared -type f -exec chmod 644 {} +

FROM ${RUNTIME}
COPY --from=prepared /opt/prepared /opt/assets
