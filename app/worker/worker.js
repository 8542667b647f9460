// The worker's event loop: requests go in, the session works slice by slice, replies go out.
// In dist/ it lies beside the glue that wasm-bindgen wrote.
import init, { Door } from "./pipewright_worker.js";

// Milliseconds of a slice: a request waits for one at most.
const SLICE = 12;
// Milliseconds between two reports.
const REPORT = 200;
// Longest text of a graph, unpacked; the largest that is accepted is shorter.
const MOST = 512 * 1024 * 1024;

// A slice ends by announcing the next one to itself. The announcement queues behind whatever the
// page has sent meanwhile; a timer would do the same but browsers make nested timers wait for 4 ms.
const turn = new MessageChannel();
let announced = false;
let door;
let waiting = [];
let moves = 1000;
let reported = 0;

function announce() {
  if (!announced) {
    announced = true;
    turn.port2.postMessage(null);
  }
}

function say(reply) {
  postMessage(JSON.stringify(reply));
}

function fail(error) {
  door = undefined;
  waiting = undefined;
  say({ failed: { why: String(error?.message ?? error) } });
}

function drain() {
  for (let reply; (reply = door.take()) !== undefined; ) postMessage(reply);
}

turn.port1.onmessage = () => {
  announced = false;
  if (!door) return;
  try {
    const from = performance.now();
    const more = door.step(moves);
    const now = performance.now();
    // As many moves as fill a slice.
    const fit = SLICE / (now - from + 0.01);
    moves = Math.min(1e6, Math.max(50, moves * Math.min(2, Math.max(0.5, fit))));
    if (!more || now - reported > REPORT) {
      reported = now;
      door.report();
      drain();
    }
    if (more) announce();
  } catch (error) {
    fail(error);
  }
};

// Bytes of a file, unpacked where it is packed; never more than the largest graph has.
async function unpacked(file) {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = head[0] === 0x1f && head[1] === 0x8b;
  const gunzip = (stream) => stream.pipeThrough(new DecompressionStream("gzip"));
  const reader = (packed ? gunzip(file.stream()) : file.stream()).getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw new Error(`${file.name} is not whole${packed ? " as a file of gzip" : ""}; copy it anew.`);
    });
    if (done) break;
    length += value.length;
    if (length > MOST) {
      await reader.cancel();
      throw new Error(
        `${file.name} has more than 512 MiB of text${packed ? ", unpacked" : ""}; ` +
          "no graph that is accepted is that long.",
      );
    }
    parts.push(value);
  }
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

async function open(file) {
  try {
    const bytes = await unpacked(file);
    take(() => door.open(file.name, bytes));
  } catch (error) {
    say({ failed: { why: error.message } });
  }
}

function take(act) {
  if (!door) return;
  try {
    act();
    drain();
    announce();
  } catch (error) {
    fail(error);
  }
}

function receive(message) {
  if (message instanceof File) open(message);
  else take(() => door.receive(message));
}

// Set before the wasm has come: messages without a listener would be lost.
onmessage = ({ data }) => (door ? receive(data) : waiting?.push(data));

init()
  .then(() => {
    door = new Door();
    waiting.forEach(receive);
    waiting = undefined;
  })
  .catch(fail);
