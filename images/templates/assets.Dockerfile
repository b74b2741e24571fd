# The engine's image, with the system's files (weights) as the last layer.
ARG ENGINE
FROM ${ENGINE}
COPY assets /opt/assets
