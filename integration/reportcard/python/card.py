# SPDX-License-Identifier: Apache-2.0
"""What the Python clients share: a list of cases, each with a time limit, and one line of output per case."""
import os
import signal
import sys
import time
import traceback

BOOTSTRAP = os.environ["CARD_BOOTSTRAP"].split(",")
RUN = os.environ["CARD_RUN"]
REPLICAS = int(os.environ.get("CARD_REPLICAS", "3"))
CASE_SECONDS = 60
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BASE = int(time.time() * 1000) - 3600_000  # of the records' timestamps: recent, as retention goes by them

_cases = []


class NotThere(Exception):
    """The client's API has nothing for the case."""


def case(name):
    def register(fn):
        _cases.append((name, fn))
        return fn
    return register


def name(what):
    return f"{RUN}-{what}"


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def equal(got, want, what=""):
    check(got == want, what, "got", repr(got)[:200], "want", repr(want)[:200])


def until(fn, seconds=30):
    """Polls until fn returns something true."""
    deadline = time.time() + seconds
    while True:
        got = fn()
        if got:
            return got
        check(time.time() < deadline, "not true within", seconds, "s")
        time.sleep(0.1)


def say(*fields):
    print("\t".join(" ".join(str(f).split()) for f in fields), flush=True)


class Late(BaseException):
    """The case's time is over. Not an Exception: clients catch those."""


def _late(_signal, _frame):
    raise Late(f"not done within {CASE_SECONDS} s")


def main():
    wanted = os.environ.get("CARD_CASES", "").split()
    signal.signal(signal.SIGALRM, _late)
    for what, fn in _cases:
        if wanted and what not in wanted:
            continue
        signal.alarm(CASE_SECONDS)
        try:
            fn()
            say("pass", what)
        except NotThere as e:
            say("none", what, e)
        except (Exception, Late) as e:  # every other error is the case's result
            traceback.print_exc(file=sys.stderr)
            say("fail", what, f"{type(e).__name__}: {str(e)[:300]}")
        finally:
            signal.alarm(0)
    sys.stdout.flush()
    os._exit(0)  # threads of a client whose case failed would wait forever
