// Carries standard input and output over a WebSocket: node bridge.mjs ws://HOST:PORT/interlace
// The WebSocket is the one that Node brings along; binary messages are cut anywhere.

const PIECE = 777;
const socket = new WebSocket(process.argv[2]);
socket.binaryType = "arraybuffer";

socket.onopen = () => {
  process.stdin.on("data", (data) => {
    for (let at = 0; at < data.length; at += PIECE) {
      socket.send(data.subarray(at, at + PIECE));
    }
  });
  process.stdin.on("end", () => socket.close(1000));
};

socket.onmessage = (event) => {
  if (typeof event.data === "string") {
    console.error("a text message");
    process.exit(1);
  }
  process.stdout.write(Buffer.from(event.data));
};

socket.onclose = (event) => {
  process.exitCode = event.code === 1000 ? 0 : 1;
  process.stdin.destroy();
  process.stdout.end();
};
