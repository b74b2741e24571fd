# Two systems in one image: everything of an engine lies under a name of its own in /opt, so they do not meet.
# The second comes with its layers; of the first, /opt is laid over it, and of the joining engine its own folder,
# the code that it shares and the driver.
ARG ENGINE
ARG FIRST
ARG SECOND
FROM ${FIRST} AS first
FROM ${ENGINE} AS engine
FROM ${SECOND}
ARG NAME
COPY --from=first /opt /opt
COPY --from=engine /opt/shared /opt/shared
COPY --from=engine /opt/harness /opt/harness
COPY --from=engine /opt/${NAME} /opt/${NAME}
COPY components.json /opt/components.json
ENV PYTHONPATH=/opt/harness:/opt/shared:/opt/${NAME}:/opt/${NAME}/packages
