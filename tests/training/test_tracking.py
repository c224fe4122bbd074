"""The MLflow store: how a run ends, whoever ends it, and what is left of it in this process."""

import os
import signal
import threading

import mlflow
import pytest

from laps_sd.training.signals import orderly, uninterrupted
from laps_sd.training.tracking import _FIRST_CALL, _environment, logged_run, store_uri, tracking

pytestmark = pytest.mark.usefixtures("as_in_a_terminal")


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def only_run(store, experiment):
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return run


def test_an_interrupt_while_a_run_is_opened_ends_it_as_failed(store, monkeypatch):
    start = mlflow.start_run

    def interrupted(**where):
        run = start(**where)
        interrupt()
        return run

    with tracking(store) as module:
        monkeypatch.setattr(module, "start_run", interrupted)
        with pytest.raises(KeyboardInterrupt), logged_run(module, "opened", "name"):
            raise AssertionError("the work began after an interrupt")
    assert only_run(store, "opened").info.status == "FAILED"
    assert mlflow.active_run() is None


def test_a_second_interrupt_while_a_failure_is_told_does_not_keep_the_run_open(store, monkeypatch):
    tell = mlflow.set_tag

    def interrupted(name, value):
        interrupt()
        tell(name, value)

    with tracking(store) as module:
        monkeypatch.setattr(module, "set_tag", interrupted)
        with pytest.raises(KeyboardInterrupt), logged_run(module, "told", "name"):
            interrupt()
    run = only_run(store, "told")
    assert run.info.status == "FAILED"
    assert run.data.tags["laps_sd.failure"] == "KeyboardInterrupt"


def test_a_store_is_named_by_its_folder_however_many_came_before(store, tmp_path):
    before = store_uri(None)
    with tracking(store):
        pass
    assert "MLFLOW_TRACKING_URI" not in os.environ
    assert store_uri(None) == before == f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_a_server_that_does_not_answer_is_waited_for_ten_seconds():
    tries = 1 + int(_FIRST_CALL["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
    assert tries * int(_FIRST_CALL["MLFLOW_HTTP_REQUEST_TIMEOUT"]) <= 10


def test_the_patience_that_the_user_chose_holds_for_the_first_call_too(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    with _environment(_FIRST_CALL):
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_the_end_of_the_process_interrupts_as_a_key_does(self, number):
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt), orderly():
            interrupt(number)
        assert signal.getsignal(number) == before

    def test_an_ignored_signal_stays_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with orderly():
                interrupt(signal.SIGHUP)
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_an_interrupt_waits_for_the_end_of_the_block(self):
        done = []

        @uninterrupted()
        def work():
            interrupt()
            done.append(1)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert done == [1]

    def test_whoever_interrupts_twice_is_not_put_off(self):
        done = []

        @uninterrupted()
        def work():
            interrupt()
            interrupt()
            done.append(1)

        with pytest.raises(KeyboardInterrupt):
            work()
        assert done == []

    def test_threads_have_no_signals_to_wait_for(self):
        done = []

        def work():
            with orderly(), uninterrupted():
                done.append(1)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert done == [1]
