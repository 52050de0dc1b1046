"""A client of Slackline in plain Python, from docs/protocol*.md alone: for those who write one in another language.

Wants grpcio, protobuf 4 or later, NumPy, and the program protoc. It leaves out what a client may leave out: encodings,
windows, shared memory, TLS, and pulls of only what has changed. reference_worker.py trains with it.
"""
import pathlib
import queue
import secrets
import subprocess
import tempfile
import threading
import time

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTOS = pathlib.Path(__file__).resolve().parents[2] / "protos"
WAIT_S = 60  # for anybody's next word
CODES = {code.value[0]: code for code in grpc.StatusCode}
UNAVAILABLE, TOO_LATE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED
LATER = {UNAVAILABLE, TOO_LATE, grpc.StatusCode.RESOURCE_EXHAUSTED}  # the scheduler will answer, if asked again
# Ends of streams and refusals after which all is said again on new streams.
AGAIN = {UNAVAILABLE, TOO_LATE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED, grpc.StatusCode.CANCELLED,
         grpc.StatusCode.FAILED_PRECONDITION}
WORKER, READER, LIVE, DISCARDED = 1, 2, 2, 2  # of Role, WorkerState and Outcome
OPTIONS = [("grpc.max_receive_message_length", 8 << 20), ("grpc.max_reconnect_backoff_ms", 1000)]


class Stopped(Exception):
    """Not to be tried again, for instance a mistake of ours."""


class PutOut(Stopped):
    """This worker is no member any more, or is called back from standby: it may register again."""


class Broken(Exception):
    """A stream has ended, or something on it was refused."""

    def __init__(self, code, message):
        super().__init__(f"{code.name}: {message}")
        self.code = code


class Wire:
    """The messages by their names, and calls, made from protos/ at run time."""

    def __init__(self):
        with tempfile.NamedTemporaryFile(suffix=".pb") as out:
            subprocess.run(["protoc", f"-I{PROTOS}", "--include_imports", f"--descriptor_set_out={out.name}",
                            "scheduler.proto", "parameter_server.proto"], check=True)
            files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.Add(file)

    def __getattr__(self, name):
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"slackline.wire.{name}"))

    def call(self, channel, service, method):
        found = self.pool.FindServiceByName(f"slackline.wire.{service}").FindMethodByName(method)
        make = channel.stream_stream if method == "Exchange" else channel.unary_unary
        return make(f"/slackline.wire.{service}/{method}",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=message_factory.GetMessageClass(found.output_type).FromString)


class Scheduler:
    """Its calls, each with a deadline, and the heartbeats, which go on in a thread whatever this worker computes."""

    def __init__(self, wire, run, job, metadata, model, train, test, fingerprint, name):
        self.wire, self.metadata, self.name = wire, metadata, name
        self.period = job["timeouts"]["heartbeat_ms"] / 1000
        self.place, self.address, self.channel = run / "scheduler.address", None, None
        self.registration = wire.RegisterWorkerRequest(
            name=name, job_fingerprint=fingerprint, train_samples=train, test_samples=test,
            instance=secrets.randbits(63) + 1,  # tells it from another process of its name
            tensors=[wire.TensorSpec(name=tensor, shape=shape, trained=True) for tensor, shape in model.tensors])
        self.lock, self.left, self.last_step = threading.Lock(), threading.Event(), 0.0

    def reach(self):
        """The channel to where the scheduler is now: started again, it may be elsewhere."""
        address = self.place.read_text().strip()
        if address != self.address:
            self.address, self.channel = address, grpc.insecure_channel(address, options=OPTIONS)
        return self.channel

    def ask(self, method, request, patience=WAIT_S):
        deadline = time.monotonic() + patience
        while True:
            try:
                return self.wire.call(self.reach(), "Scheduler", method)(request, timeout=5, metadata=self.metadata)
            except grpc.RpcError as error:
                if error.code() not in LATER or time.monotonic() > deadline:
                    out = error.code() is grpc.StatusCode.FAILED_PRECONDITION and method in ("Heartbeat", "NextTask")
                    raise (PutOut if out else Stopped)(f"{method}: {error.code().name}: {error.details()}") from error
                self.left.wait(self.period)

    def join(self):
        """Registers and beats until this worker is live. Returns the heartbeat that says so."""
        self.end_heartbeats()  # of an earlier life
        reply = self.ask("RegisterWorker", self.registration)
        self.job, self.worker, self.incarnation = reply.job, reply.worker, reply.incarnation
        self.registration.worker, self.registration.incarnation = reply.worker, reply.incarnation
        self.progress, self.beat = self.wire.WorkerProgress(slack_max=0), None
        self.last_step = time.monotonic()
        threading.Thread(target=self.keep_beating, args=(self.left,), daemon=True).start()
        deadline = time.monotonic() + WAIT_S
        while not isinstance(self.beat, Exception) and (self.beat is None or self.beat.state != LIVE):
            if time.monotonic() > deadline:
                raise Stopped(f"the scheduler has not made this worker live within {WAIT_S} s")
            self.left.wait(self.period / 4)
        self.count(clock=self.check_beat().first_clock)
        return self.beat

    def check_beat(self):
        if isinstance(self.beat, Exception):
            raise self.beat
        return self.beat

    def heartbeat(self, **more):
        with self.lock:
            self.progress.idle_ms = int(1000 * (time.monotonic() - self.last_step))
            request = self.wire.HeartbeatRequest(job=self.job, role=2, member=self.worker, incarnation=self.incarnation,
                                                 worker=self.progress, **more)
            self.progress.slack_max = 0
        return self.ask("Heartbeat", request)

    def keep_beating(self, left):
        while not left.wait(self.period):
            try:
                self.beat = self.heartbeat()
            except Stopped as error:
                self.beat = error
                return

    def next_task(self, range_done, speed):
        with self.lock:
            request = self.wire.NextTaskRequest(job=self.job, worker=self.worker, incarnation=self.incarnation,
                                                range_done=range_done, samples_per_second=speed, progress=self.progress)
        return self.ask("NextTask", request)

    def count(self, **totals):
        """Adds to the totals that heartbeats carry."""
        with self.lock:
            self.last_step = time.monotonic()
            for name, more in totals.items():
                setattr(self.progress, name, getattr(self.progress, name) + more)

    def note_slack(self, slack):
        with self.lock:
            self.progress.slack_max = max(self.progress.slack_max, slack)

    def waits(self, waiting):
        with self.lock:
            self.progress.waiting = waiting

    def end_heartbeats(self):
        self.left.set()
        self.left = threading.Event()

    def leave(self, reason):
        self.end_heartbeats()
        self.heartbeat(leaving=True, leaving_reason=reason)


class Exchange:
    """The streams to all servers. When one breaks, all are opened again, and what has no answer is sent again, byte for
    byte."""

    def __init__(self, wire, scheduler, first_clock, reader=False):
        self.wire, self.scheduler, self.first_clock, self.reader = wire, scheduler, first_clock, reader
        self.answered, self.versions, self.pending, self.wanted = {}, {}, {}, set()
        self.pull_ids, self.pull_clock, self.channels, self.discarded = {}, first_clock, {}, 0
        self.weights, self.clock_min = None, {}
        # Of answered pushes, those that a restored shard no longer has; per shard, up to where that is known, and what it
        # has discarded since.
        self.lost, self.lost_to, self.unapplied = 0, {}, {}
        self.open()

    def open(self):
        wire, request = self.wire, self.wire.GetShardMapRequest(job=self.scheduler.job)
        self.map = self.scheduler.ask("GetShardMap", request)
        self.shards = {shard.shard: shard for shard in self.map.shards}
        self.weights = np.zeros(self.map.elements, np.float32) if self.weights is None else self.weights
        self.inbox, self.outboxes, self.chunk_bytes = queue.SimpleQueue(), {}, {}
        for shard in self.shards:
            self.answered.setdefault(shard, self.first_clock)
        for server in self.map.servers:
            mine = [shard for shard, spec in self.shards.items() if spec.server == server.server]
            if not mine:
                continue
            if server.address not in self.channels:
                self.channels[server.address] = grpc.insecure_channel(server.address, options=OPTIONS)
            channel = self.channels[server.address]
            self.outboxes[server.server] = queue.SimpleQueue()
            self.send(server.server, hello=wire.Hello(
                role=READER if self.reader else WORKER, worker=self.scheduler.worker,
                incarnation=self.scheduler.incarnation, first_clock=self.first_clock, clock=min(self.answered.values()),
                window=1,
                shards=[wire.ShardClock(shard=shard, last_answered=self.answered[shard]) for shard in mine]))
            frames = wire.call(channel, "ParameterServer", "Exchange")(
                iter(self.outboxes[server.server].get, None), metadata=self.scheduler.metadata)
            threading.Thread(target=self.read, args=(frames, server, self.inbox), daemon=True).start()

    @staticmethod
    def read(frames, server, inbox):
        try:
            for frame in frames:
                inbox.put((server, frame))
            inbox.put((server, Broken(UNAVAILABLE, "the server has closed the stream")))
        except grpc.RpcError as error:
            inbox.put((server, Broken(error.code(), error.details())))

    def send(self, server, payload=b"", **body):
        generation = next(spec.generation for spec in self.map.servers if spec.server == server)
        self.outboxes[server].put(self.wire.WorkerFrame(
            job=self.scheduler.job, generation=generation, payload=payload,
            items=[self.wire.WorkerItem(payload_bytes=len(payload), **body)]))

    def close(self):
        for outbox in self.outboxes.values():
            outbox.put(None)

    def seed(self, weights):
        self.step(0, weights, seed=True)

    def step(self, sequence, values, commit=None, seed=False):
        """Pushes `values` (float32, the whole model) and waits for all answers; then, but for seeds, pulls."""
        for shard, spec in self.shards.items():
            trailer = self.wire.PushCommit(base=self.versions.get(shard), **(commit or {}))
            self.pending[shard] = (sequence, seed, trailer, values[spec.begin:spec.end].astype("<f4").tobytes())
        if not seed:
            self.want(sequence)
        self.exchange()

    def pull(self):
        self.want(self.pull_clock)
        self.exchange()

    def want(self, clock):
        self.pull_clock, self.wanted = clock, set(self.shards)

    def say(self, server):
        """Says to a server what it has not answered."""
        mine = [shard for shard, spec in self.shards.items() if spec.server == server]
        for shard in mine:
            if shard in self.pending:
                sequence, seed, trailer, data = self.pending[shard]
                size = self.chunk_bytes[server] // 4 * 4
                for begin in range(0, len(data), size):
                    piece, last = data[begin:begin + size], begin + size >= len(data)
                    self.send(server, piece, push=self.wire.PushChunk(
                        shard=shard, sequence=sequence, seed=seed, offset=begin // 4, elements=len(piece) // 4,
                        commit=trailer if last else None))
        self.pull_ids[server] = self.pull_ids.get(server, 0) + 1
        wanted = [self.wire.ShardVersion(shard=shard) for shard in mine if shard in self.wanted]
        if wanted:
            self.send(server, pull=self.wire.Pull(id=self.pull_ids[server], clock=self.pull_clock, shards=wanted))

    def exchange(self):
        for server in self.chunk_bytes:  # those that have welcomed us
            self.say(server)
        failures, heard = 0, time.monotonic()
        while self.pending or self.wanted:
            try:
                server, frame = self.inbox.get(timeout=self.scheduler.period)
                heard = time.monotonic()
                broken = frame if isinstance(frame, Broken) else self.take(server.server, frame)
            except queue.Empty:
                broken = None
            if time.monotonic() > heard + WAIT_S:
                awaited = sorted({self.shards[shard].server for shard in [*self.pending, *self.wanted]})
                raise Stopped(f"servers {awaited} have said nothing for {WAIT_S} s")
            moved = self.scheduler.check_beat().generation > self.map.generation
            if broken is not None:
                failures += 1
                if broken.code not in AGAIN or failures > WAIT_S:
                    raise Stopped(f"server {server.name}: {broken}")
                self.scheduler.left.wait(min(1, 0.05 * 2**failures))
            if broken is not None or moved:
                self.close()
                self.open()

    def note_lost(self, state):
        """Every Welcome says it again, and a server that died twice may count some of them again."""
        known, to = self.lost_to.get(state.shard, 0), min(state.lost_to, self.answered.get(state.shard, 0))
        if to <= known:
            return
        begin, unapplied = max(state.lost_to - state.lost, known), self.unapplied.get(state.shard, [])
        self.lost += max(0, to - begin - sum(begin < sequence <= to for sequence in unapplied))
        self.lost_to[state.shard] = to
        self.unapplied[state.shard] = [sequence for sequence in unapplied if sequence > to]

    def take(self, server, frame):
        """Takes a frame's items. Returns what was refused, as an exception, or None."""
        at, refused = 0, None
        for item in frame.items:
            payload = frame.payload[at:at + item.payload_bytes]
            at += item.payload_bytes
            kind = item.WhichOneof("body")
            body = getattr(item, kind)
            if kind == "welcome":
                self.chunk_bytes[server] = body.chunk_bytes_max
                for state in body.shards:
                    self.note_lost(state)
                self.say(server)
            elif kind == "answer" and body.shard in self.pending and self.pending[body.shard][0] == body.sequence:
                del self.pending[body.shard]
                self.answered[body.shard] = max(self.answered[body.shard], body.sequence)
                if body.outcome == DISCARDED and body.sequence > 0:
                    self.discarded += 1
                    self.unapplied.setdefault(body.shard, []).append(body.sequence)
                self.clock_min[body.shard] = body.clock_min
            elif kind == "pull" and body.id == self.pull_ids[server]:
                begin = self.shards[body.shard].begin + body.offset
                self.weights[begin:begin + body.elements] = np.frombuffer(payload, "<f4")
            elif kind == "refused":
                refused = Broken(CODES[body.code], body.message)
            done = body if kind == "pull_done" else body.done if kind == "pull" and body.HasField("done") else None
            if done is not None and done.id == self.pull_ids[server]:
                self.wanted.discard(done.shard)
                self.versions[done.shard] = done.version
        return refused
