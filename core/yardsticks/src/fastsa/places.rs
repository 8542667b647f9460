//! Positions of each node in the sequence: many short ascending lists that grow and shrink.

use super::slots::NONE;

/// Lists longer than this are searched by halves.
const LONG: usize = 16;

/// Slots of each node, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    lists: Vec<List>,
    pool: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    start: u32,
    len: u32,
    room: u32,
}

impl Places {
    /// Empty lists with room for `counts` items each, and some more.
    pub fn new(counts: &[u32]) -> Self {
        let mut start = 0;
        let list = |count: &u32| {
            let room = (count + 1).next_power_of_two();
            start += room;
            List { start: start - room, len: 0, room }
        };
        let lists = counts.iter().map(list).collect();
        Self { lists, pool: vec![NONE; start as usize] }
    }

    /// Slots of a node, ascending.
    pub fn get(&self, node: u32) -> &[u32] {
        let List { start, len, .. } = self.lists[node as usize];
        &self.pool[start as usize..(start + len) as usize]
    }

    /// How many there are before `slot`.
    pub fn rank(&self, node: u32, slot: u32) -> usize {
        let places = self.get(node);
        if places.len() <= LONG {
            return places.iter().map(|place| usize::from(*place < slot)).sum();
        }
        places.partition_point(|place| *place < slot)
    }

    /// The last one before `slot`, else [`NONE`].
    pub fn before(&self, node: u32, slot: u32) -> u32 {
        match self.rank(node, slot) {
            0 => NONE,
            rank => self.get(node)[rank - 1],
        }
    }

    /// The first one after `slot`, else [`NONE`].
    pub fn after(&self, node: u32, slot: u32) -> u32 {
        self.get(node).get(self.rank(node, slot + 1)).copied().unwrap_or(NONE)
    }

    /// Adds a slot that is not there.
    pub fn insert(&mut self, node: u32, slot: u32) {
        let at = self.rank(node, slot);
        let list = self.lists[node as usize];
        if list.len == list.room {
            self.grow(node);
        }
        let list = &mut self.lists[node as usize];
        list.len += 1;
        let places = &mut self.pool[list.start as usize..(list.start + list.len) as usize];
        places.copy_within(at..places.len() - 1, at + 1);
        places[at] = slot;
    }

    /// Takes away a slot that is there.
    pub fn remove(&mut self, node: u32, slot: u32) {
        let at = self.rank(node, slot);
        let list = &mut self.lists[node as usize];
        let places = &mut self.pool[list.start as usize..(list.start + list.len) as usize];
        places.copy_within(at + 1.., at);
        list.len -= 1;
    }

    /// Twice the room, at the end. Rooms left behind are together smaller than those in use.
    fn grow(&mut self, node: u32) {
        let List { start, len, room } = self.lists[node as usize];
        let list = List { start: self.pool.len() as u32, len, room: 2 * room };
        self.pool.extend_from_within(start as usize..(start + len) as usize);
        self.pool.resize((list.start + list.room) as usize, NONE);
        self.lists[node as usize] = list;
    }
}
