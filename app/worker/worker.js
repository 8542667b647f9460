// The worker's event loop: orders go in, the session works slice by slice, replies go out.
// In dist/ it lies beside the glue that wasm-bindgen wrote.
import init, { Session } from "./pipewright_worker.js";

// A slice ends by announcing the next one to itself. The announcement queues behind whatever the
// page has sent meanwhile, so that an order waits for one slice at most; a timer would do the same
// but browsers make nested timers wait for 4 ms.
const turn = new MessageChannel();
let announced = false;
let session;
let waiting = [];

function announce() {
  if (!announced) {
    announced = true;
    turn.port2.postMessage(null);
  }
}

function fail(error) {
  session = undefined;
  waiting = undefined;
  postMessage(JSON.stringify({ failed: { why: String(error) } }));
}

function drain() {
  for (let reply; (reply = session.take()) !== undefined; ) postMessage(reply);
}

turn.port1.onmessage = () => {
  announced = false;
  if (!session) return;
  try {
    const more = session.step();
    drain();
    if (more) announce();
  } catch (error) {
    fail(error);
  }
};

function receive(order) {
  if (!session) return;
  try {
    session.receive(order);
    drain();
    announce();
  } catch (error) {
    fail(error);
  }
}

// Set before the wasm has come: messages without a listener would be lost.
onmessage = ({ data }) => (session ? receive(data) : waiting?.push(data));

init()
  .then(() => {
    session = new Session();
    waiting.forEach(receive);
    waiting = undefined;
  })
  .catch(fail);
