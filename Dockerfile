# The runner with Debian's Open MPI, for one machine, a cluster or Kubernetes:
#     docker build -t pipewright .
#     docker run --rm pipewright                    # the demo: digits-cnn on 4 stages, 4 ranks
#     docker run --rm pipewright pipewright --help
# docs/running-on-clusters.md says more. scripts/cluster/image-here.sh goes through these steps without Docker.
FROM docker.io/library/rust:1-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
    clang libclang-dev libopenmpi-dev libprotobuf-dev protobuf-compiler \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --locked --release -p pipewright-runner --features etcd

FROM docker.io/library/debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends openmpi-bin openssh-client openssh-server \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 --shell /bin/bash pipewright
COPY --from=build /src/target/release/runner /usr/local/bin/runner
COPY scripts/cluster/image/demo.sh /usr/local/bin/demo
COPY scripts/cluster/image/ssh_config /etc/ssh/ssh_config.d/pipewright.conf
COPY scripts/cluster/image/sshd_config /usr/share/pipewright/sshd_config
COPY tests/data/digits /usr/share/pipewright/digits
# Without room for the privileges it gives up, sshd does not start.
RUN ln -s runner /usr/local/bin/pipewright && mkdir -p /run/sshd
# Ranks may outnumber cores, and those that wait give theirs away. Docker forbids to read another process's memory.
ENV OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
USER pipewright
WORKDIR /home/pipewright
CMD ["demo"]
