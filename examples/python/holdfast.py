"""Locks of holdfast over HTTP, with the standard library alone.

    api = Session("http://127.0.0.1:7420/api", client="nightly report")
    with api.lock("report/nightly") as lock:
        while work_left():
            lock.check()              # raises Lost in time
            work(lock.token)          # the resource refuses a smaller token

A thread sends heartbeats. A lock is trusted for as long as the last answer said, counted from when
the request was sent, on a clock that includes the time that the machine slept.
"""

import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.request


class Error(Exception):
    """What the server has refused; code says why."""

    def __init__(self, status, code, message):
        super().__init__(f"{message} ({code})")
        self.status, self.code = status, code


class Lost(Exception):
    """The lock is not to be trusted any more. Stop, and do not write."""


def now():
    """A clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Session:
    """A session keeps the locks of this process. It is safe for use by several threads."""

    def __init__(self, url, client="", secret=os.environ.get("HOLDFAST_SERVE_TOKEN")):
        self._url, self._secret, self._session = url.rstrip("/") + "/v1/", secret, None
        self._guard, self._numbers, self._locks = threading.Lock(), 0, {}
        answer, _ = self._call("sessions", {"client": client})
        self._session, self._ttl = answer["session"], answer["ttl_ms"] / 1000
        self._pause = answer["heartbeat_ms"] / 1000
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def lock(self, name, **options):
        """Wait for a lock. options: mode, permits, limit, note, labels, wait."""
        with self._guard:
            self._numbers += 1
            number = self._numbers
        body = {"request": number, "name": name, **options}
        try:
            while True:
                sent = now()
                try:
                    answer, status = self._call("acquire", body)
                except OSError:  # no answer: ask again with the same number, there is no second grant
                    self._rest_or_fail()
                    continue
                except Error as e:
                    if e.status != 503:
                        raise
                    self._rest_or_fail()
                    continue
                if status == 202:  # still in the queue
                    continue
                lock = Lock(self, name, int(answer["token"]), answer["lease"])
                lock._trust(sent, answer["trusted_ms"])
                with self._guard:
                    self._locks[lock._lease] = lock
                return lock
        except BaseException:  # also KeyboardInterrupt: leave the queue
            try:
                self._call("cancel", {"request": number})
            except (OSError, Error):
                pass  # the place ends by itself
            raise

    def close(self):
        """Release all locks."""
        self._ended.set()
        self._thread.join()
        with self._guard:
            for lock in self._locks.values():
                lock._until = 0
        self._call("sessions/end", {})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _rest_or_fail(self):
        if self._ended.wait(0.5):
            raise Lost("the session was closed")

    def _beat(self):
        while not self._ended.wait(self._pause):
            with self._guard:
                leases = list(self._locks)
            sent = now()
            try:
                answer, _ = self._call("sessions/heartbeat", {"leases": leases})
            except Error as e:
                if e.code == "no_such_session":
                    with self._guard:
                        for lock in self._locks.values():
                            lock._until = 0
                    return
                continue
            except OSError:
                continue  # each lock ends when it is not trusted any more
            with self._guard:
                for lease, state in zip(leases, answer["leases"]):
                    if lease in self._locks:  # else it was released meanwhile
                        self._locks[lease]._trust(sent, state.get("trusted_ms", 0))
                        self._locks[lease].asked = state.get("asked_to_release", "")

    def _call(self, path, body):
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        if self._session:
            request.add_header("Holdfast-Session", self._session)
        if self._secret:
            request.add_header("Authorization", "Bearer " + self._secret)
        try:
            with urllib.request.urlopen(request, timeout=self._ttl if self._session else 10) as answer:
                return json.load(answer), answer.status
        except urllib.error.HTTPError as e:
            try:
                problem = json.load(e)["error"]
            except (ValueError, KeyError):
                problem = {"code": "http", "message": str(e)}
            raise Error(e.code, problem["code"], problem["message"]) from None
        except (http.client.HTTPException, ValueError) as e:  # the answer broke off
            raise OSError(f"no answer: {e}") from e


class Lock:
    """A lock that this process holds. token is the fencing token."""

    def __init__(self, session, name, token, lease):
        self.name, self.token = name, token
        self._session, self._lease, self._until = session, lease, 0
        self.asked = ""  # who asks this process to release the lock, and why

    def left(self):
        """For how many seconds the lock can still be trusted."""
        return max(self._until - now(), 0)

    def check(self, needed=0):
        """Raise Lost unless the lock can be trusted for so many more seconds."""
        if self.left() <= needed:
            raise Lost(self.name)

    def release(self):
        """Release the lock. It raises Error if it was lost."""
        with self._session._guard:
            self._session._locks.pop(self._lease, None)
        self._until = 0
        for last in (False, False, True):  # a repeat has the same answer
            try:
                self._session._call("release", {"lease": self._lease})
                return
            except OSError:
                if last:
                    raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.release()
        except (OSError, Error):
            if kind is None:
                raise

    def _trust(self, sent, trusted_ms):
        self._until = sent + trusted_ms / 1000 if trusted_ms > 0 else 0
