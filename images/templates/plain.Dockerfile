# A system without files of its own: its engine's image.
ARG ENGINE
FROM ${ENGINE}
