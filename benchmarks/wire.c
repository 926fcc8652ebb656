// A slow wire between two network namespaces of its own, for measurements of calls from far away.
//
//   wire DELAY_US BITS_A_SECOND QUEUE_BYTES
//
// Delay, rate and queue hold for each direction; a packet that the queue has no room for is dropped.
// It makes the namespaces, gives them the addresses 198.18.0.1 and 198.18.0.2, and prints the
// descriptors by which others enter them: nsenter --net=/proc/PID/fd/N. Nothing of it has a name or a
// file, so that the namespaces are gone with the last process in them. For each line of its input it
// prints how many packets, each sent after the one before had come, have led to what the second end
// has got since the line before. It ends when its input does.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 65536, AT_ONCE = 64, SECOND = 1000000000 };

struct packet {
  struct packet *next;
  uint64_t due;
  ssize_t length;
  unsigned trips;
  char data[];
};

struct direction {
  int from, to;
  unsigned *sent, *got;  // trips that have led to what either end has
  struct packet *head, **tail;
  uint64_t free_at;  // when the last packet has been put on the wire
};

static uint64_t delay, rate, queue;

static void need(int succeeded, const char *what) {
  if (!succeeded) {
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
  }
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * SECOND + time.tv_nsec;
}

static void bring_up(int socket, const char *name) {
  struct ifreq request = {0};
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  need(!ioctl(socket, SIOCGIFFLAGS, &request), "reading an interface");
  request.ifr_flags |= IFF_UP;
  need(!ioctl(socket, SIOCSIFFLAGS, &request), "bringing an interface up");
}

static void set_address(int socket, unsigned long what, const char *text) {
  struct ifreq request = {.ifr_name = "wire"};
  struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
  address->sin_family = AF_INET;
  inet_pton(AF_INET, text, &address->sin_addr);
  need(!ioctl(socket, what, &request), "setting an address");
}

// Goes into a new namespace; its end of the wire.
static int end_of_wire(const char *address) {
  need(!unshare(CLONE_NEWNET), "a new network namespace");
  int end = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  need(end >= 0, "/dev/net/tun");
  struct ifreq request = {.ifr_name = "wire", .ifr_flags = IFF_TUN | IFF_NO_PI};
  need(!ioctl(end, TUNSETIFF, &request), "a TUN interface");
  int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  need(control >= 0, "a socket");
  set_address(control, SIOCSIFADDR, address);
  set_address(control, SIOCSIFNETMASK, "255.255.255.0");
  bring_up(control, "wire");
  bring_up(control, "lo");
  close(control);
  return end;
}

static int this_namespace(void) {
  int found = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  need(found >= 0, "/proc/self/ns/net");
  return found;
}

static void put_on_wire(struct direction *way, const char *data, ssize_t length) {
  uint64_t time = now(), start = way->free_at > time ? way->free_at : time;
  if ((start - time) * (rate / 8e9) > queue) return;
  way->free_at = start + length * 8ull * SECOND / rate;
  struct packet *packet = malloc(sizeof *packet + length);
  need(packet != NULL, "memory");
  packet->next = NULL;
  packet->due = way->free_at + delay;
  packet->length = length;
  packet->trips = *way->sent + 1;
  memcpy(packet->data, data, length);
  *way->tail = packet;
  way->tail = &packet->next;
}

static void take_in(struct direction *way) {
  static char data[LONGEST];
  for (int count = 0; count < AT_ONCE; count++) {
    ssize_t length = read(way->from, data, sizeof data);
    if (length <= 0) return;
    put_on_wire(way, data, length);
  }
}

// A packet that the other side has no room for is lost, as on a wire.
static void hand_over(struct direction *way, uint64_t time) {
  while (way->head && way->head->due <= time) {
    struct packet *packet = way->head;
    way->head = packet->next;
    if (!way->head) way->tail = &way->head;
    need(write(way->to, packet->data, packet->length) >= 0 || errno == EAGAIN, "writing");
    if (packet->trips > *way->got) *way->got = packet->trips;
    free(packet);
  }
}

// Whether there was a line; says it.
static int told(unsigned trips[2]) {
  char line[2];
  if (read(STDIN_FILENO, line, sizeof line) <= 0) return 0;
  printf("%u\n", trips[1]);
  fflush(stdout);
  trips[0] = trips[1] = 0;
  return 1;
}

int main(int count, char **arguments) {
  need(count == 4, "expected DELAY_US BITS_A_SECOND QUEUE_BYTES");
  delay = strtoull(arguments[1], NULL, 10) * 1000;
  rate = strtoull(arguments[2], NULL, 10);
  queue = strtoull(arguments[3], NULL, 10);
  need(rate > 0, "expected a rate above 0");
  setpriority(PRIO_PROCESS, 0, -15);  // it keeps time while others compute
  int a = end_of_wire("198.18.0.1"), inside_a = this_namespace();
  int b = end_of_wire("198.18.0.2"), inside_b = this_namespace();
  unsigned trips[2] = {0};
  struct direction ways[2] = {{.from = a, .to = b, .sent = &trips[0], .got = &trips[1]},
                              {.from = b, .to = a, .sent = &trips[1], .got = &trips[0]}};
  ways[0].tail = &ways[0].head;
  ways[1].tail = &ways[1].head;
  printf("%d %d\n", inside_a, inside_b);
  fflush(stdout);
  struct pollfd polled[3] = {{a, POLLIN, 0}, {b, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  while (!polled[2].revents || told(trips)) {
    uint64_t time = now(), next = time + SECOND;
    for (int i = 0; i < 2; i++) {
      hand_over(&ways[i], time);
      if (ways[i].head && ways[i].head->due < next) next = ways[i].head->due;
    }
    struct timespec wait = {(next - time) / SECOND, (next - time) % SECOND};
    ppoll(polled, 3, &wait, NULL);
    take_in(&ways[0]);
    take_in(&ways[1]);
  }
  return 0;
}
