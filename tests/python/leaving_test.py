"""Workers that leave while something else goes on: in a signal handler, from another thread, after errors of any text.

    leaving_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import os
import signal
import sys
import threading
import time

import package_test
from package_test import DataLoader, data, main, nn, slackline

WAIT_S = 30


class Script:
    """A worker in the middle of a step: it has gradients to push."""

    def __init__(self, cluster, name):
        self.worker = cluster.connect(name=name, log="nothing")
        self.model = nn.Linear(4, 1)
        self.optimizer = slackline.Optimizer(self.model, self.worker)
        self.batches = self.worker.batches(DataLoader(data(), batch_size=8, sampler=self.worker.sampler(48)))

    def backward(self):
        """Returns False once the job is over."""
        batch = next(self.batches, None)
        if batch is not None:
            self.optimizer.zero_grad()
            ((self.model(batch[0]) - batch[1]) ** 2).mean().backward()
        return batch is not None


class Partner:
    """The job's other worker, in a thread of its own. Under bsp nobody's step ends before it may go()."""

    def __init__(self, test, cluster):
        self._may_go = threading.Event()
        self._stepped = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(cluster,))
        self._thread.start()
        test.addCleanup(self._thread.join)
        test.addCleanup(self._may_go.set)

    def go(self, wait=False):
        self._may_go.set()
        if wait:
            self._stepped.wait(WAIT_S)

    def _work(self, cluster):
        script = Script(cluster, "partner")
        with script.worker:
            while script.backward():
                self._may_go.wait()
                script.optimizer.step()
                self._stepped.set()


class Base(package_test.Base):
    def cluster(self, text="", **options):
        return super().cluster(f"consistency: {{mode: bsp}}\n{text}", overrides=["training.epochs=1000"], **options)

    def when(self, condition, act):
        """Has `act` called by another thread."""

        def watch():
            deadline = time.monotonic() + WAIT_S
            while not condition() and time.monotonic() < deadline:
                threading.Event().wait(0.01)
            act()

        thread = threading.Thread(target=watch)
        thread.start()
        self.addCleanup(thread.join)

    def act_during(self, worker, call, act):
        """As soon as the call of this name waits."""
        self.when(lambda: worker._job.running == call, act)

    def signal_during(self, worker, call, handler):
        """In the main thread, while the call of this name waits there."""
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, handler))
        self.act_during(worker, call, lambda: os.kill(os.getpid(), signal.SIGUSR1))


class Signals(Base):
    def test_step_that_ends_soon_counts(self):
        with self.cluster(workers=2) as cluster:
            partner, script = Partner(self, cluster), Script(cluster, "preempted")
            script.backward()

            def leave(*_):
                partner.go(wait=True)
                script.worker.leave("by a signal")

            self.signal_during(script.worker, "optimizer.step()", leave)
            with script.worker:
                script.optimizer.step()
                self.assertEqual((script.worker.clock, script.worker.done), (1, True))
                self.assertEqual(script.worker.reason, "by a signal")
                self.assertFalse(script.backward())
            self.wait_for_event(cluster, "worker preempted leaves: by a signal")

    def test_step_that_waits_for_ever_is_cut_short(self):
        with self.cluster(workers=2) as cluster:
            partner, script = Partner(self, cluster), Script(cluster, "preempted")
            script.backward()
            self.signal_during(script.worker, "optimizer.step()", lambda *_: script.worker.leave("by a signal"))
            with script.worker:
                script.optimizer.step()
                self.assertEqual((script.worker.clock, script.worker.done), (0, True))
                self.assertFalse(script.backward())
            self.wait_for_event(cluster, "worker preempted leaves: by a signal")
            partner.go(wait=True)

    def test_handler_that_leaves_and_exits(self):
        with self.cluster(workers=2) as cluster:
            partner, script = Partner(self, cluster), Script(cluster, "preempted")
            script.backward()

            def leave_and_exit(*_):
                partner.go(wait=True)
                script.worker.leave("by a signal")
                sys.exit(7)

            self.signal_during(script.worker, "optimizer.step()", leave_and_exit)
            with self.assertRaises(SystemExit) as ended, script.worker:
                script.optimizer.step()
            self.assertEqual((ended.exception.code, script.worker.reason), (7, "by a signal"))
            self.wait_for_event(cluster, "worker preempted leaves: by a signal")

    def test_handler_that_leaves_during_the_join(self):
        # It waits for a second worker that never comes.
        with self.cluster(workers=2) as cluster:
            script = Script(cluster, "preempted")
            self.signal_during(script.worker, "the draw of samples", lambda *_: script.worker.leave("by a signal"))
            with script.worker:
                self.assertFalse(script.backward())
            self.assertEqual(script.worker.reason, "by a signal")

    def test_second_signal_ends_the_wait_of_the_first(self):
        with self.cluster(workers=2) as cluster:
            Partner(self, cluster)
            script = Script(cluster, "preempted")
            script.backward()
            signals = []

            def leave(*_):
                signals.append(script.worker.done)
                if len(signals) == 2:
                    sys.exit(7)
                # It leaves from the next line on.
                self.when(lambda: script.worker.done, lambda: os.kill(os.getpid(), signal.SIGUSR1))
                script.worker.leave("by a signal")

            self.signal_during(script.worker, "optimizer.step()", leave)
            with self.assertRaises(SystemExit), script.worker:
                script.optimizer.step()
            self.assertEqual(signals, [False, True])
            self.assertTrue(script.worker.done)
            self.wait_for_event(cluster, "worker preempted leaves: by a signal")

    def test_handler_that_leaves_during_leave(self):
        # Another push is in flight, whose answer leave() waits for.
        with self.cluster("wire: {window: 2}\n", workers=2) as cluster:
            partner, script = Partner(self, cluster), Script(cluster, "preempted")
            script.backward()
            script.optimizer.step()

            def leave(*_):
                script.worker.leave("by a signal")
                partner.go()

            self.signal_during(script.worker, "worker.leave()", leave)
            script.worker.leave("enough")
            self.assertEqual((script.worker.done, script.worker.reason), (True, "enough"))
            self.wait_for_event(cluster, "worker preempted leaves: enough")

    def test_other_calls_are_refused_with_what_to_do(self):
        with self.cluster(workers=2) as cluster:
            partner, script = Partner(self, cluster), Script(cluster, "busy")
            script.backward()
            refused = []

            def misuse(*_):
                pass_again = ((script.model(data()[:8][0]) - 1) ** 2).mean().backward
                for call in (script.optimizer.step, pass_again, lambda: script.worker._job.next(False)):
                    try:
                        call()
                    except slackline.FailedPreconditionError as error:
                        refused.append(str(error))
                script.worker.alive()
                partner.go(wait=True)

            self.signal_during(script.worker, "optimizer.step()", misuse)
            with script.worker:
                script.optimizer.step()
                self.assertEqual(script.worker.clock, 1)
            self.assertEqual(len(refused), 3, refused)
            for words in refused:
                self.assertRegex(words, "optimizer.step.. of this worker is still running; .* may call worker.leave()")

    def test_child_that_a_handler_has_forked_does_not_wait(self):
        parent = os.getpid()
        with self.cluster(workers=2) as cluster:
            partner, script = Partner(self, cluster), Script(cluster, "forks")
            script.backward()
            children = []

            def fork(*_):
                child = os.fork()
                if child:
                    children.append(child)
                    partner.go()

            self.signal_during(script.worker, "optimizer.step()", fork)
            try:
                script.optimizer.step()
            except slackline.FailedPreconditionError as error:
                os._exit(42 if os.getpid() != parent and "was forked from" in str(error) else 1)
            finally:
                if os.getpid() != parent:
                    os._exit(1)
            self.assertEqual(script.worker.clock, 1)
            self.assertEqual(self.code_of(children[0]), 42)
            script.worker.leave()

    def code_of(self, child):
        deadline = time.monotonic() + WAIT_S
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            threading.Event().wait(0.01)


class Threads(Base):
    def test_another_thread_leaves_during_a_step(self):
        with self.cluster(workers=2) as cluster:
            Partner(self, cluster)
            script = Script(cluster, "watched")
            script.backward()
            self.act_during(script.worker, "optimizer.step()", lambda: script.worker.leave("by a thread"))
            script.optimizer.step()
            self.assertFalse(script.backward())
            self.assertEqual((script.worker.done, script.worker.reason), (True, "by a thread"))
            self.wait_for_event(cluster, "worker watched leaves: by a thread")


class Texts(Base):
    r"""Names of files and texts of errors that are not UTF-8: b"\xfc" is a u with dots in Latin-1."""

    NOT_UTF8 = os.fsdecode(b"M\xfcller")

    def check_failure(self, error, said):
        with self.cluster() as cluster:
            with self.assertRaises(type(error)) as raised, cluster.connect(name="clumsy", log="nothing") as worker:
                slackline.Optimizer(nn.Linear(4, 1), worker)
                next(iter(worker.sampler(48)))
                raise error
            self.assertIs(raised.exception, error)
            self.wait_for_event(cluster, f"worker clumsy leaves: failed: {said}")

    def test_error_that_is_not_utf8_is_told_and_raised(self):
        self.check_failure(ValueError(f"cannot decode {self.NOT_UTF8}.png"), r"ValueError: cannot decode M\udcfcller.png")

    def test_error_whose_text_cannot_be_had(self):
        class Mute(Exception):
            def __str__(self):
                raise ZeroDivisionError

        self.check_failure(Mute(), "Mute: its text cannot be had: ZeroDivisionError")

    def test_long_error_is_cut(self):
        self.check_failure(ValueError("x" * (8 << 20)), "ValueError: " + "x" * 500 + "...")

    def test_job_file_whose_path_is_not_utf8(self):
        self.folder = self.folder / self.NOT_UTF8
        self.folder.mkdir()
        with self.cluster() as cluster, cluster.connect(log="nothing") as worker:
            model = nn.Linear(4, 1)
            optimizer = slackline.Optimizer(model, worker)
            x, _ = next(iter(worker.batches(DataLoader(data(), batch_size=8, sampler=worker.sampler(48)))))
            model(x).mean().backward()
            optimizer.step()
            self.assertEqual(worker.clock, 1)

    def test_run_folder_whose_path_is_not_utf8_is_refused(self):
        folder = self.folder / self.NOT_UTF8
        with self.assertRaisesRegex(ValueError, r"run_folder: found '.*/M\\udcfcller'; allowed is a path in UTF-8"):
            with self.cluster(run_folder=folder):
                pass
        self.assertFalse(folder.exists())

    def test_messages_show_what_is_not_utf8(self):
        with self.assertRaisesRegex(FileNotFoundError, r"M\\xfcller/none.yaml"):
            slackline.connect("127.0.0.1:1", f"{self.folder}/{self.NOT_UTF8}/none.yaml")
        with self.assertRaisesRegex(ValueError, r"the name 'M\\xfcller'"):
            slackline.connect("127.0.0.1:1", str(self.job()), name=self.NOT_UTF8)


if __name__ == "__main__":
    main()
