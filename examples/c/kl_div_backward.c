/* One call of aclnnKlDivBackward in frames: C11 and POSIX sockets, no gRPC, no protobuf.
 *
 *   cc -std=c11 -O2 -o kl_div_backward kl_div_backward.c
 *   ./kl_div_backward SOCKET GRAD_OUTPUT TARGET [TOKEN]
 *   ./kl_div_backward /tmp/npucall-1000/0123456789ab.sock 1 0.25,0.75
 *
 * SOCKET is GetServerInfoResponse.frames_socket. docs/clients.md explains the wire, step by step;
 * proto/npucall/v1/frames.proto is the contract. Exit codes: 0, the gradient is printed; 1, the
 * server answered an error; 2, wrong arguments; 3, no server, or the connection broke. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { HELLO = 1, CREDENTIAL, WELCOME, EXECUTE, RESPONSE = 7, ERROR, ALIVE = 11 }; /* FrameKind */
enum { NUMBER = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };              /* wire types of protobuf */
enum { FLOAT = 1, SUM = 2, SECONDS = 300, SILENCE_SECONDS = 30, HEADER_BYTES = 16 };

static void fail(int code, const char *what) {
  fprintf(stderr, "kl_div_backward: %s\n", what);
  exit(code);
}

/* --- Bytes that grow ------------------------------------------------------------------------ */

struct bytes {
  unsigned char *data;
  size_t size;
};

static void append(struct bytes *to, const void *data, size_t size) {
  unsigned char *grown = realloc(to->data, to->size + size + 1);
  if (grown == NULL) fail(3, "no memory");
  if (size > 0) memcpy(grown + to->size, data, size);
  to->data = grown;
  to->size += size;
}

static void append_little_endian(struct bytes *to, uint64_t value, int size) {
  for (int i = 0; i < size; i++) append(to, &(unsigned char){(value >> 8 * i) & 0xff}, 1);
}

static uint32_t little_endian(const unsigned char *from) {
  return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* --- Protobuf, as much as a call needs ------------------------------------------------------- */

static void append_varint(struct bytes *to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) append(to, &(unsigned char){(value & 0x7f) | 0x80}, 1);
  append(to, &(unsigned char){(unsigned char)value}, 1);
}

static void append_number(struct bytes *to, int field, uint64_t value) {
  append_varint(to, (uint64_t)field << 3 | NUMBER);
  append_varint(to, value);
}

static void append_bytes(struct bytes *to, int field, const void *data, size_t size) {
  append_varint(to, (uint64_t)field << 3 | BYTES);
  append_varint(to, size);
  append(to, data, size);
}

static void append_message(struct bytes *to, int field, struct bytes *message) {
  append_bytes(to, field, message->data, message->size);
  free(message->data);
}

struct reader {
  const unsigned char *at, *end;
};

static uint64_t read_varint(struct reader *from) {
  uint64_t value = 0;
  for (int shift = 0; from->at < from->end && shift < 64; shift += 7) {
    value |= (uint64_t)(*from->at & 0x7f) << shift;
    if (*from->at++ < 0x80) return value;
  }
  fail(3, "the server sent what is no protobuf message");
  return 0;
}

/* The next field: answers its number, 0 at the end. A number stands in `value`, bytes in `content`. */
static int next_field(struct reader *from, uint64_t *value, struct reader *content) {
  if (from->at == from->end) return 0;
  uint64_t tag = read_varint(from), size = 0;
  *value = 0;
  if ((tag & 7) == NUMBER) *value = read_varint(from);
  else if ((tag & 7) == BYTES) size = read_varint(from);
  else size = (tag & 7) == FIXED64 ? 8 : (tag & 7) == FIXED32 ? 4 : UINT64_MAX;
  if (size > (uint64_t)(from->end - from->at)) fail(3, "the server sent half a message");
  *content = (struct reader){from->at, from->at + size};
  from->at += size;
  return (int)(tag >> 3);
}

/* The bytes of the first field with this number; none if there is none. */
static struct reader find(struct reader in, int wanted) {
  struct reader content;
  uint64_t value;
  for (int field; (field = next_field(&in, &value, &content)) != 0;)
    if (field == wanted) return content;
  return (struct reader){in.end, in.end};
}

/* --- Frames ---------------------------------------------------------------------------------- */

static void send_frame(int connection, int kind, uint32_t call, const struct bytes *message) {
  struct bytes frame = {0};
  append_little_endian(&frame, message->size, 4);
  append_little_endian(&frame, call, 4);
  append_little_endian(&frame, (uint64_t)kind, 1);
  append_little_endian(&frame, 0, 1);                            /* flags */
  append_little_endian(&frame, 0, 2);                            /* bytes of metadata */
  append_little_endian(&frame, kind == EXECUTE ? SECONDS * 1000 : 0, 4); /* milliseconds */
  append(&frame, message->data, message->size);
  for (size_t sent = 0; sent < frame.size;) {
    ssize_t count = send(connection, frame.data + sent, frame.size - sent, MSG_NOSIGNAL);
    if (count <= 0) fail(3, "the connection broke, or the server did not read");
    sent += (size_t)count;
  }
  free(frame.data);
}

static void receive(int connection, unsigned char *to, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t count = recv(connection, to + got, size - got, 0);
    if (count <= 0) fail(3, "the connection broke, or the server did not answer");
    got += (size_t)count;
  }
}

static int receive_frame(int connection, struct bytes *message) {
  unsigned char header[HEADER_BYTES];
  receive(connection, header, sizeof header);
  message->size = little_endian(header);
  message->data = realloc(message->data, message->size + 1);
  if (message->data == NULL) fail(3, "no memory for the answer");
  receive(connection, message->data, message->size);
  return header[8];
}

/* Prints an error, a google.rpc.Status with a google.rpc.ErrorInfo in its details, and ends. */
static void refused(struct reader status) {
  struct reader text = find(status, 2), reason = find(find(find(status, 3), 2), 1);
  fprintf(stderr, "%.*s: %.*s\n", (int)(reason.end - reason.at), (const char *)reason.at,
          (int)(text.end - text.at), (const char *)text.at);
  exit(1);
}

static void expect(int connection, int wanted, struct bytes *message) {
  int kind;
  while ((kind = receive_frame(connection, message)) == ALIVE)
    send_frame(connection, ALIVE, 0, &(struct bytes){0});
  if (kind == ERROR) refused((struct reader){message->data, message->data + message->size});
  if (kind != wanted) fail(3, "the server sent another frame than it should");
}

static int connected(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct timeval patience = {.tv_sec = SILENCE_SECONDS};
  if (strlen(path) >= sizeof address.sun_path) fail(2, "SOCKET: the path is too long");
  strcpy(address.sun_path, path);
  int connection = socket(AF_UNIX, SOCK_STREAM, 0);
  if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) != 0) {
    perror(path);
    exit(3);
  }
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  return connection;
}

/* --- The call -------------------------------------------------------------------------------- */

/* An Argument with a TensorSpec: `count` floats in one dimension, or 1 in none. */
static void append_tensor(struct bytes *call, const char *name, size_t count, int stored) {
  struct bytes argument = {0}, spec = {0};
  append_number(&spec, 1, FLOAT);
  if (count != 1) append_number(&spec, 2, count);
  append_bytes(&argument, 1, name, strlen(name));
  if (stored) append_number(&argument, 2, 1);
  append_message(&argument, 4, &spec);
  append_message(call, 3, &argument);
}

static void append_storage(struct bytes *request, const struct bytes *floats) {
  struct bytes storage = {0};
  append_bytes(&storage, 15, floats->data, floats->size);
  append_message(request, 2, &storage);
}

/* An ExecuteRequest. The operator reads the shape of `self` and not its values. */
static struct bytes request_of(const struct bytes *grad, const struct bytes *target) {
  struct bytes request = {0}, call = {0}, reduction = {0};
  append_bytes(&call, 1, "aclnnKlDivBackward", strlen("aclnnKlDivBackward"));
  append_tensor(&call, "grad_output", grad->size / 4, 1);
  append_tensor(&call, "self", target->size / 4, 0);
  append_tensor(&call, "target", target->size / 4, 1);
  append_bytes(&reduction, 1, "reduction", strlen("reduction"));
  append_number(&reduction, 5, SUM);
  append_message(&call, 3, &reduction);
  append_message(&request, 1, &call);
  append_storage(&request, grad);
  append_storage(&request, target);
  return request;
}

static struct bytes floats_of(const char *text) {
  struct bytes floats = {0};
  for (char *end; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    float value = strtof(text, &end);
    uint32_t bits;
    if (end == text || (*end != ',' && *end != '\0')) fail(2, "expected numbers, with commas");
    memcpy(&bits, &value, sizeof bits);
    append_little_endian(&floats, bits, 4);
  }
  return floats;
}

static void print_floats(struct reader floats) {
  for (; floats.end - floats.at >= 4; floats.at += 4) {
    uint32_t bits = little_endian(floats.at);
    float value;
    memcpy(&value, &bits, sizeof value);
    printf("%.9g\n", value);
  }
}

int main(int count, char **arguments) {
  if (count < 4) fail(2, "expected SOCKET GRAD_OUTPUT TARGET [TOKEN]");
  struct bytes grad = floats_of(arguments[2]), target = floats_of(arguments[3]);
  struct bytes request = request_of(&grad, &target), credential = {0}, answer = {0};
  if (count > 4) {
    struct bytes authorization = {0};
    append(&authorization, "Bearer ", strlen("Bearer "));
    append(&authorization, arguments[4], strlen(arguments[4]));
    append_message(&credential, 1, &authorization);
  }

  int connection = connected(arguments[1]);
  expect(connection, HELLO, &answer); /* a FrameHello: a client that uses gRPC too compares `server` */
  send_frame(connection, CREDENTIAL, 0, &credential);
  expect(connection, WELCOME, &answer);
  send_frame(connection, EXECUTE, 1, &request);
  expect(connection, RESPONSE, &answer); /* an ExecuteResponse: its storage's data */
  print_floats(find(find((struct reader){answer.data, answer.data + answer.size}, 3), 15));

  close(connection);
  free(grad.data), free(target.data), free(request.data), free(credential.data), free(answer.data);
  return 0;
}
