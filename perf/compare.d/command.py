# SPDX-License-Identifier: Apache-2.0
"""Running other programs, and saying why one could not be run."""
import json
import os
import signal
import subprocess
import sys
import time

# Of a measurement that takes a second or two.
PATIENCE_S = 120


class NotRun(Exception):
    """A subject was not measured; the text says why."""


def progress(text):
    """What is being done, on one line of a terminal; nothing where there is none."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def complaint(text):
    """What a program said when it failed: usage errors come first, other reasons last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else "it said nothing"


def end(process):
    """Ends a process that was started in a session of its own, and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(5)
            return
        except subprocess.TimeoutExpired:
            pass


def start(args, env=None, **more):
    """In a session of its own, which `end` ends."""
    try:
        return subprocess.Popen(
            [str(a) for a in args],
            env={**os.environ, **(env or {})},
            text=True,
            start_new_session=True,
            **more,
        )
    except OSError as error:
        raise NotRun(f"{args[0]}: {error.strerror}") from None


def run(args, env=None, timeout=PATIENCE_S):
    """Its stdout. NotRun: it is not there, failed, or took too long."""
    with start(args, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise NotRun(f"{os.path.basename(str(args[0]))} took longer than {timeout} s") from None
        finally:
            end(process)
    if process.returncode:
        raise NotRun(f"{os.path.basename(str(args[0]))} ended with {process.returncode}: {complaint(err or out)}")
    return out


def run_json(args, env=None, timeout=PATIENCE_S):
    """The JSON object that it prints, as all of its output or as the last line."""
    out = run(args, env, timeout)
    for text in (out, last_line(out)):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    raise NotRun(f"{os.path.basename(str(args[0]))} printed no JSON: {last_line(out)}")


def run_with_server(server, client, env=None, ready_after=0.3, timeout=PATIENCE_S):
    """The client's stdout; the server runs beside it, and is ended afterwards."""
    beside = start(server, env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        time.sleep(ready_after)
        if beside.poll() not in (None, 0):
            raise NotRun(f"the server of {server[0]}: {last_line(beside.communicate()[0])}")
        return run(client, env, timeout)
    finally:
        end(beside)
        if beside.stdout:
            beside.stdout.close()
