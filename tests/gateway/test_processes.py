"""`refold serve --workers N`: several processes on one socket."""

import fcntl
import json
import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Event

import httpx
import pytest

from refold.gateway import Config, Upstream
from refold.gateway.metrics import Counters, SharedMetrics, render, sum_samples
from refold.testing.scripted_provider import Reply, ScriptedProvider
from tests.support.agent_requests import read_files
from tests.support.gateway_processes import GatewayProcess, run_processes
from tests.support.raw_http import eventually

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="children are looked up in /proc"
)
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def children(process):
    pid = process.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def running_process(tmp_path_factory):
    with ScriptedProvider(["Hello."]) as upstream:
        process = GatewayProcess(
            tmp_path_factory.mktemp("served"),
            "workers",
            f'[[upstream]]\nurl = "{upstream.url}"\n',
            "--workers",
            "3",
        )
        with run_processes(process):
            yield process, upstream


def ask(process):
    return httpx.post(f"{process.url}/v1/chat/completions", json=BODY, timeout=60).status_code


def test_several_processes_answer_on_one_socket(running_process):
    process, upstream = running_process
    before = len(upstream.received)
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, [process] * 60)) == {200}
    assert len(upstream.received) == before + 60
    assert eventually(lambda: len(children(process)) == 3)


def read_requests(text):
    return [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("refold_http_requests_total")
    ]


def test_any_process_reports_the_metrics_of_all_processes(running_process):
    """This includes a process that was killed: a counter never falls."""
    process, upstream = running_process
    for _ in range(30):
        assert ask(process) == 200
    total = len(upstream.received)
    assert eventually(lambda: sum(read_requests(httpx.get(f"{process.url}/metrics").text)) == total)
    os.kill(children(process)[0], signal.SIGKILL)
    for _ in range(10):
        text = httpx.get(f"{process.url}/metrics").text
        assert sum(read_requests(text)) == total
    assert text.count("# TYPE refold_http_requests_total counter") == 1
    assert "refold_http_requests_in_progress" in text


def test_a_killed_worker_is_replaced_and_requests_are_still_answered(running_process):
    process, _ = running_process
    assert eventually(lambda: len(children(process)) == 3)
    before = set(children(process))
    os.kill(min(before), signal.SIGKILL)
    assert eventually(lambda: len(set(children(process)) - before) == 1)
    assert ask(process) == 200
    assert eventually(lambda: "a worker is replaced" in process.log.read_text())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="there is no IPv6 with IPv4 here")
def test_a_gateway_on_all_addresses_of_ipv6_answers_ipv4_too(tmp_path):
    config = "host = '::'\n[[upstream]]\nurl = 'http://127.0.0.1:9'\n"
    environment = {**os.environ, "REFOLD_ADMIN_TOKEN": "an-admin-token-of-a-test"}
    process = GatewayProcess(tmp_path, "dual", config, **environment)
    with run_processes(process):
        for host in ("127.0.0.1", "[::1]"):
            answer = httpx.get(f"http://{host}:{process.port}/refold/health", timeout=60)
            assert answer.status_code == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_c19_sighup_does_not_end_the_gateway_or_its_workers(tmp_path, workers):
    """SIGHUP used to end the gateway and its workers at once, with all running requests."""
    with ScriptedProvider(["Hello."]) as upstream:
        process = GatewayProcess(
            tmp_path, "hung", f'[[upstream]]\nurl = "{upstream.url}"\n', "--workers", workers
        )
        with run_processes(process):
            assert workers == "1" or eventually(lambda: len(children(process)) == 2)
            for pid in (*children(process), process.process.pid):
                os.kill(pid, signal.SIGHUP)
            for _ in range(10):
                assert ask(process) == 200
            assert process.process.poll() is None
        assert "replaced" not in process.log.read_text()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_unread_log_pipe_blocks_no_request(tmp_path, workers):
    """After about 160 requests the pipe was full, and the gateway waited for its reader."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096)
    with ScriptedProvider(["Hello."]) as upstream, os.fdopen(reading) as log:
        config = f'[[upstream]]\nurl = "{upstream.url}"\n'
        process = GatewayProcess(tmp_path, "unread", config, "--workers", workers, pipe=writing)
        os.close(writing)
        with run_processes(process):
            assert {ask(process) for _ in range(60)} == {200}
            lines = (line for line in log if '"request"' in line)
            assert len(list(islice(lines, 60))) == 60, "it waited until somebody reads"
        assert log.read().count("Finished server process") == int(workers)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_free_file_descriptors_connections_wait_and_are_reported(tmp_path, workers):
    """They used to be closed silently, which clients and load balancers took for a crash."""
    with ScriptedProvider(["Hello."]) as upstream, ExitStack() as connected:
        config = f'[[upstream]]\nurl = "{upstream.url}"\n[limits]\nhead_seconds = 600\n'
        process = GatewayProcess(tmp_path, "full", config, "--workers", workers, descriptors=64)
        with run_processes(process):
            assert ask(process) == 200
            for _ in range(64 * int(workers)):
                line = socket.create_connection(("127.0.0.1", process.port))
                connected.enter_context(line)
            assert eventually(lambda: "Too many open files" in process.log.read_text())
            with ThreadPoolExecutor(1) as pool:
                late = pool.submit(ask, process)
                assert not wait([late], 2).done
                connected.close()
                assert late.result() == 200, "it was only late"
            text = httpx.get(f"{process.url}/metrics", timeout=60).text
            (count,) = re.findall(r"^refold_http_accept_failures_total (\d+)", text, re.MULTILINE)
            assert 0 < int(count) < 300, "it does not try all the time"
        lines = [line for line in process.log.read_text().splitlines() if "Too many" in line]
        assert len(lines) <= 2 * int(workers)


def take_samples(name, **labels):
    counters = Counters()
    counters.add(name, **labels)
    counters.observe("prepare_seconds", 0.2)
    return counters.samples(under_way=1)


def test_samples_of_processes_are_added_by_name_and_labels():
    first, second = take_samples("a", x="1"), take_samples("a", x="2")
    text = render(sum_samples([first, second, first])).decode().splitlines()
    assert {'refold_a_total{x="1"} 2', 'refold_a_total{x="2"} 1', "refold_under_way 3"} <= {*text}
    assert "refold_prepare_seconds_sum 0.600000" in text
    assert 'refold_prepare_seconds_bucket{le="0.25"} 3' in text
    assert text.count("# TYPE refold_a_total counter") == 1
    assert first == take_samples("a", x="1"), "what is added up is not changed"


def write_as_ended(place):
    """Write the samples of a process that has ended."""
    SharedMetrics(place, lambda: take_samples("x"))()
    (place / str(os.getpid())).rename(place / "999999999")


def test_concurrent_metrics_requests_are_all_answered(tmp_path):
    """Meanwhile this process writes its samples for the others, as it does once a second."""
    write_as_ended(tmp_path)
    metrics = SharedMetrics(tmp_path, lambda: take_samples("x"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: metrics(), range(200)))
    assert all(answer["counter", "x", ()] == [2] for answer in answers)
    assert all(answer["gauge", "under_way", ()] == [1] for answer in answers), "it does no more"
    assert {file.name for file in tmp_path.iterdir()} == {"999999999", str(os.getpid())}


def test_readable_metrics_are_reported_if_sharing_fails(tmp_path):
    write_as_ended(tmp_path)
    (tmp_path / str(os.getpid())).mkdir()
    metrics = SharedMetrics(tmp_path, lambda: take_samples("x"))
    assert metrics()["counter", "x", ()] == [2], "the others' can be read still"
    assert SharedMetrics(tmp_path / "gone", lambda: take_samples("x"))() == take_samples("x")


def test_a_stream_is_finished_before_the_processes_stop(tmp_path):
    gate = Event()

    def pieces():
        yield b'data: {"n": 1}\n\n'
        assert gate.wait(300)
        yield b"data: [DONE]\n\n"

    with ScriptedProvider([Reply(body=pieces(), type="text/event-stream")]) as upstream:
        process = GatewayProcess(
            tmp_path, "workers", f'[[upstream]]\nurl = "{upstream.url}"\n', "--workers", "2"
        )
        with run_processes(process):
            body = {**BODY, "stream": True}
            with httpx.stream(
                "POST", f"{process.url}/v1/chat/completions", json=body, timeout=60
            ) as answer:
                lines = answer.iter_lines()
                first = next(lines)
                process.process.terminate()
                assert eventually(lambda: is_refused(process))
                gate.set()
                rest = list(lines)
            assert first.startswith("data:")
            assert "data: [DONE]" in rest
            assert process.process.wait(300) == 0


def is_refused(process):
    """Return whether a new connection is refused, so that a load balancer sends it elsewhere."""
    try:
        httpx.get(f"{process.url}/refold/health", timeout=60)
    except httpx.ConnectError:
        return process.process.poll() is None
    except httpx.HTTPError:
        pass
    return False


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_edit_of_one_process_is_shown_by_all(tmp_path):
    """The processes share one store and one salt."""
    with ScriptedProvider(["Go on."]) as upstream:
        config = f'[[upstream]]\nurl = "{upstream.url}"\n[windows]\nlocal = 15_000\n'
        process = GatewayProcess(tmp_path, "workers", config, "--workers", "3")
        messages = [{"role": "user", "content": "Find the bug."}, *read_files(60)]
        body = json.dumps({"model": "local", "messages": messages}).encode()
        with run_processes(process):
            for _ in range(12):  # each over a connection of its own, so any process may get it
                answer = httpx.post(f"{process.url}/v1/chat/completions", content=body, timeout=60)
                assert answer.status_code == 200
                time.sleep(0.01)
    assert len({asked.body for asked in upstream.received}) == 1
    assert len(upstream.received[0].body) < len(body) / 2


def test_log_lines_name_the_process_and_a_request_its_session(tmp_path):
    """With several workers an operator could not find the requests of a session."""
    with ScriptedProvider(["Go on."]) as upstream:
        config = f'[[upstream]]\nurl = "{upstream.url}"\n[windows]\nlocal = 15_000\n'
        process = GatewayProcess(tmp_path, "workers", config, "--workers", "2")
        messages = [{"role": "user", "content": "Find the bug."}, *read_files(60)]
        with run_processes(process):
            workers = set(children(process))
            asked = {"model": "local", "messages": messages}
            httpx.post(f"{process.url}/v1/chat/completions", json=asked, timeout=60)
            ask(process)  # too short to be edited, so it belongs to no session

            def list_sessions():
                answer = httpx.get(f"{process.url}/refold/api/sessions", timeout=60).json()
                return [session["id"] for session in answer["sessions"]]

            assert eventually(list_sessions)
            ids = list_sessions()
    lines = [
        json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")
    ]
    requests = [line for line in lines if line["event"] == "request"]
    assert [line.get("session") for line in requests] == [*ids, None]
    assert {line["pid"] for line in requests} <= workers
    assert {line["pid"] for line in lines} >= workers


def test_workers_exit_if_their_parent_is_killed(running_process):
    """This is the last test that uses the shared process."""
    process, _ = running_process
    assert eventually(lambda: len(children(process)) == 3)
    orphans = children(process)
    process.kill()
    assert eventually(lambda: not any(is_alive(pid) for pid in orphans))


@pytest.mark.parametrize(("workers", "store"), [(0, "refold.db"), (2, ":memory:")])
def test_zero_workers_or_several_with_an_in_memory_store_are_refused(workers, store):
    with pytest.raises(ValueError, match="workers"):
        Config(
            upstreams=(Upstream(name="a", url="http://127.0.0.1:9"),), workers=workers, store=store
        ).check_servable()


def test_a_broken_off_answer_is_reported_once(tmp_path):
    """It is logged as a cut request, and not as a server error too."""
    with ScriptedProvider([Reply("word " * 30, cut_after=2)]) as upstream:
        settings = f'[[upstream]]\nurl = "{upstream.url}"\n[windows]\nm = 20_000\n'
        process = GatewayProcess(tmp_path, "cut", settings)
        with run_processes(process):
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.post(
                    f"{process.url}/v1/chat/completions", json={**BODY, "stream": True}, timeout=60
                )
            assert eventually(lambda: '"upstream_broke_off": true' in process.log.read_text())
    lines = [
        json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")
    ]
    assert [line["level"] for line in lines if line["level"] != "info"] == ["warning"]
