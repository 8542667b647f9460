//! Maximum flow by Dinic's algorithm, for the least cut.

/// A network with capacities.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// First edge of each vertex in `next`.
    head: Vec<u32>,
    /// Edge `e` and its reverse `e ^ 1`.
    edges: Vec<Edge>,
    level: Vec<u32>,
    at: Vec<u32>,
    queue: Vec<u32>,
    path: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    next: u32,
    capacity: u64,
}

const NONE: u32 = u32::MAX;
/// More than any sum of capacities.
pub(super) const UNBOUNDED: u64 = 1 << 60;

impl Network {
    pub fn reset(&mut self, vertices: usize) {
        self.head.clear();
        self.head.resize(vertices, NONE);
        self.edges.clear();
    }

    pub fn edge(&mut self, from: u32, to: u32, capacity: u64) {
        for (from, to, capacity) in [(from, to, capacity), (to, from, 0)] {
            let next = std::mem::replace(&mut self.head[from as usize], self.edges.len() as u32);
            self.edges.push(Edge { to, next, capacity });
        }
    }

    /// Sends as much as possible from `source` to `sink`; returns how much.
    pub fn flow(&mut self, source: u32, sink: u32) -> u64 {
        let mut total = 0;
        while self.levels(source, sink) {
            self.at.clone_from(&self.head);
            total += self.block(source, sink);
        }
        total
    }

    /// After [`Self::flow`]: whether a vertex is on the source's side of the least cut that is
    /// nearest to the source.
    pub fn on_source_side(&self, vertex: u32) -> bool {
        self.level[vertex as usize] != NONE
    }

    fn levels(&mut self, source: u32, sink: u32) -> bool {
        self.level.clear();
        self.level.resize(self.head.len(), NONE);
        self.level[source as usize] = 0;
        self.queue.clear();
        self.queue.push(source);
        let mut done = 0;
        while let Some(&vertex) = self.queue.get(done) {
            done += 1;
            let mut e = self.head[vertex as usize];
            while e != NONE {
                let edge = self.edges[e as usize];
                if edge.capacity > 0 && self.level[edge.to as usize] == NONE {
                    self.level[edge.to as usize] = self.level[vertex as usize] + 1;
                    self.queue.push(edge.to);
                }
                e = edge.next;
            }
        }
        self.level[sink as usize] != NONE
    }

    /// A blocking flow along edges that lead one level on, without recursion.
    fn block(&mut self, source: u32, sink: u32) -> u64 {
        let mut total = 0;
        self.path.clear();
        let mut vertex = source;
        loop {
            if vertex == sink {
                let least = self.path.iter().map(|e| self.edges[*e as usize].capacity).min();
                let least = least.unwrap_or(0);
                total += least;
                let mut cut = 0;
                for (i, &e) in self.path.iter().enumerate().rev() {
                    self.edges[e as usize].capacity -= least;
                    self.edges[e as usize ^ 1].capacity += least;
                    if self.edges[e as usize].capacity == 0 {
                        cut = i;
                    }
                }
                vertex = self.edges[self.path[cut] as usize ^ 1].to;
                self.path.truncate(cut);
                continue;
            }
            let e = self.at[vertex as usize];
            if e == NONE {
                // A dead end.
                let Some(back) = self.path.pop() else { return total };
                vertex = self.edges[back as usize ^ 1].to;
                self.at[vertex as usize] = self.edges[self.at[vertex as usize] as usize].next;
                continue;
            }
            let edge = self.edges[e as usize];
            if edge.capacity > 0 && self.level[edge.to as usize] == self.level[vertex as usize] + 1
            {
                self.path.push(e);
                vertex = edge.to;
            } else {
                self.at[vertex as usize] = edge.next;
            }
        }
    }
}
