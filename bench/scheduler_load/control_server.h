// A server as a scheduler sees it: does all that it is told at once.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

namespace slackline::bench {

// Threads: those of gRPC, until destroyed.
class ControlServer {
 public:
  // Listens on a free port of the loopback address.
  ControlServer();
  ~ControlServer();

  // HOST:PORT
  const std::string& address() const { return address_; }

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace slackline::bench
