"""Lines for a probe of a service's image: its server and its client in one container, on its loopback interface."""

# ``started()`` starts the system's server over ``index``; ``client()`` is an adapter that asks it, ``ended()`` ends it
# as the host does after a build and returns its exit code.
SERVICE = """
import shutil, signal, subprocess
import service
from harness.driver.adapter import QueryFailed
running = []
def started(**changes):
    words = service.command({**params, **changes}, Envelope("test", 1, 1 << 30), index, Path("/opt/assets"))
    running.append(subprocess.Popen(words))
def client(**changes):
    made = engine(**changes)
    made.service_url = f"http://127.0.0.1:{service.PORT}"
    return made
def ended():
    running[-1].terminate()
    return running.pop().wait(60)
def built(documents, **changes):
    started(**changes)
    own, done = client(**changes), []
    own.build(documents, index, done.append)
    own.verify_index(documents, index)
    own.close()
    say([ended(), done[-1]])
"""
