// SPDX-License-Identifier: Apache-2.0
//
// compare_grpc unix|tcp BYTES MILLISECONDS: what a push and a pull take through gRPC, between a client
// and a server that are processes of their own. A unary call carries the gradient, its reply the
// weights. There is no update, and the client uses the weights where the reply holds them.
//
// Prints one JSON object.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <grpcpp/grpcpp.h>

#include "push_pull.grpc.pb.h"

namespace {

using gradslot::compare::Gradient;
using gradslot::compare::PushPull;
using gradslot::compare::Weights;
using Clock = std::chrono::steady_clock;

constexpr size_t kSamplesMin = 5, kSamplesMax = 1000000, kWarmup = 5;

[[noreturn]] void die(const std::string &why) {
  std::fprintf(stderr, "compare_grpc: %s\n", why.c_str());
  std::exit(1);
}

class Server final : public PushPull::Service {
 public:
  explicit Server(size_t bytes) : weights_(bytes, 'w') {}

  grpc::Status Step(grpc::ServerContext *, const Gradient *gradient, Weights *weights) override {
    if (gradient->values().size() != weights_.size())
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the gradient has another size");
    weights->set_values(weights_);
    return grpc::Status::OK;
  }

 private:
  const std::string weights_;
};

// Says on `ready` which port it got; 0 for a socket in the file system.
[[noreturn]] void serve(const std::string &address, size_t bytes, int ready) {
  Server service(bytes);
  grpc::ServerBuilder builder;
  int port = 0;

  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) _exit(1);
  if (write(ready, &port, sizeof(port)) != sizeof(port)) _exit(1);
  server->Wait();
  _exit(0);
}

double step_us(PushPull::Stub &stub, const std::string &mine) {
  const auto began = Clock::now();
  grpc::ClientContext context;
  Gradient gradient;
  Weights weights;

  gradient.set_values(mine);
  const grpc::Status status = stub.Step(&context, gradient, &weights);
  if (!status.ok()) die("the call failed: " + status.error_message());
  if (weights.values().size() != mine.size()) die("the weights have another size");
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

std::vector<double> train(const std::string &address, size_t bytes, int milliseconds) {
  grpc::ChannelArguments args;
  std::vector<double> us;
  const std::string mine(bytes, 'g');

  args.SetMaxReceiveMessageSize(-1);
  args.SetMaxSendMessageSize(-1);
  auto stub = PushPull::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args));
  for (size_t i = 0; i < kWarmup; i++) step_us(*stub, mine);
  const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (us.size() < kSamplesMin || (us.size() < kSamplesMax && Clock::now() < until))
    us.push_back(step_us(*stub, mine));
  return us;
}

}  // namespace

int main(int argc, char **argv) {
  int ready[2], port;

  if (argc != 4 || (std::strcmp(argv[1], "unix") && std::strcmp(argv[1], "tcp")) ||
      std::atoll(argv[2]) < 1 || std::atoi(argv[3]) < 1) {
    std::fprintf(stderr, "usage: compare_grpc unix|tcp BYTES MILLISECONDS\n");
    return 2;
  }
  const bool tcp = !std::strcmp(argv[1], "tcp");
  const auto bytes = static_cast<size_t>(std::atoll(argv[2]));
  std::string path = "/tmp/compare-grpc-" + std::to_string(getpid()) + ".sock";
  std::string address = tcp ? "127.0.0.1:0" : "unix:" + path;
  if (pipe(ready)) die("no pipe");
  // Before either has a thread of gRPC's.
  const pid_t parent = getpid(), child = fork();
  if (child < 0) die("no second process");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    serve(address, bytes, ready[1]);
  }
  close(ready[1]);
  if (read(ready[0], &port, sizeof(port)) != sizeof(port)) die("the server did not start");
  if (tcp) address = "127.0.0.1:" + std::to_string(port);
  std::vector<double> us = train(address, bytes, std::atoi(argv[3]));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  unlink(path.c_str());
  std::sort(us.begin(), us.end());
  std::printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, \"samples\": %zu}\n", us[(us.size() - 1) / 2],
              us[(us.size() - 1) * 99 / 100], us.size());
  return 0;
}
