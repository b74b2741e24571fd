# Two systems in one image: everything of an engine lies under a name of its own in /opt, so they do not meet.
# The second comes with its layers; of the first and of the joining engine, /opt is laid over it.
ARG ENGINE
ARG FIRST
ARG SECOND
FROM ${FIRST} AS first
FROM ${ENGINE} AS engine
FROM ${SECOND}
COPY --from=first /opt /opt
COPY --from=engine /opt /opt
COPY components.json /opt/components.json
ARG NAME
ENV PYTHONPATH=/opt/harness:/opt/parts:/opt/${NAME}:/opt/${NAME}/packages
