//! Points of two classes in the plane: what the networks learn.

use super::dice::Dice;
use std::f64::consts::{PI, TAU};

/// Points to train with; as many again to test with.
pub const POINTS: usize = 512;

/// How the classes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Two arms around each other.
    Spiral,
    /// A disc within a ring.
    Circles,
    /// Two crescents.
    Moons,
    /// Opposite quarters.
    Xor,
}

impl Set {
    /// In the order in which they are offered.
    pub const ALL: [Set; 4] = [Set::Circles, Set::Moons, Set::Xor, Set::Spiral];

    /// Its word in links.
    pub fn word(self) -> &'static str {
        match self {
            Set::Spiral => "spiral",
            Set::Circles => "circles",
            Set::Moons => "moons",
            Set::Xor => "xor",
        }
    }

    /// A point of class `class`, without noise; coordinates between -1 and 1.
    fn place(self, class: usize, dice: &mut Dice) -> (f64, f64) {
        let side = if class == 0 { -1.0 } else { 1.0 };
        match self {
            Set::Spiral => {
                let along = dice.uniform().sqrt();
                let angle = along * 1.6 * TAU + if class == 0 { 0.0 } else { PI };
                (0.9 * along * libm::cos(angle), 0.9 * along * libm::sin(angle))
            }
            Set::Circles => {
                let angle = dice.uniform() * TAU;
                let radius = if class == 0 {
                    0.62 + 0.28 * dice.uniform()
                } else {
                    0.4 * dice.uniform().sqrt()
                };
                (radius * libm::cos(angle), radius * libm::sin(angle))
            }
            Set::Moons => {
                let angle = dice.uniform() * PI;
                let (x, y) = (0.58 * libm::cos(angle), 0.58 * libm::sin(angle));
                (x + 0.28 * side, side * (0.2 - y))
            }
            Set::Xor => {
                let (x, y) = (0.06 + 0.84 * dice.uniform(), 0.06 + 0.84 * dice.uniform());
                let flip = if dice.uniform() < 0.5 { -1.0 } else { 1.0 };
                (x * flip, y * flip * side)
            }
        }
    }
}

/// Points and their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Two coordinates a point, around -1 to 1.
    pub points: Vec<f32>,
    /// 0 or 1.
    pub classes: Vec<u8>,
}

impl Data {
    /// [`POINTS`] points of a set; `noise` is the deviation of what is added to each coordinate, `purpose`
    /// tells points to train with from those to test with.
    pub fn new(set: Set, noise: f64, seed: u64, purpose: u64) -> Self {
        let mut dice = Dice::new(seed, purpose);
        let mut data = Self { points: Vec::with_capacity(2 * POINTS), classes: vec![] };
        for at in 0..POINTS {
            let class = at % 2;
            let (x, y) = set.place(class, &mut dice);
            data.points.push((x + noise * dice.normal()) as f32);
            data.points.push((y + noise * dice.normal()) as f32);
            data.classes.push(class as u8);
        }
        data
    }

    /// Points and classes at `places`, one after the other.
    pub fn gather(&self, places: &[u32], points: &mut Vec<f32>, classes: &mut Vec<u8>) {
        points.clear();
        classes.clear();
        for at in places.iter().map(|at| *at as usize) {
            points.extend_from_slice(&self.points[2 * at..2 * at + 2]);
            classes.push(self.classes[at]);
        }
    }
}

/// The order in which points are trained with: every point once an epoch, shuffled anew in each.
pub struct Order {
    seed: u64,
    epoch: u64,
    places: Vec<u32>,
}

impl Order {
    /// The order of a seed.
    pub fn new(seed: u64) -> Self {
        let mut order = Self { seed, epoch: u64::MAX, places: (0..POINTS as u32).collect() };
        order.turn(0);
        order
    }

    fn turn(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.places.iter_mut().zip(0..).for_each(|(place, at)| *place = at);
            Dice::new(self.seed, 1000 + epoch).shuffle(&mut self.places);
        }
    }

    /// The places of mini-batch number `step`.
    pub fn batch(&mut self, step: u64, samples: usize, places: &mut Vec<u32>) {
        places.clear();
        for sample in step * samples as u64..(step + 1) * samples as u64 {
            self.turn(sample / POINTS as u64);
            places.push(self.places[(sample % POINTS as u64) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_balanced_within_the_picture_and_follow_from_the_seed() {
        for set in Set::ALL {
            let data = Data::new(set, 0.0, 5, 1);
            assert_eq!(data, Data::new(set, 0.0, 5, 1));
            assert_ne!(data.points, Data::new(set, 0.0, 6, 1).points);
            assert_ne!(data.points, Data::new(set, 0.0, 5, 2).points);
            assert_eq!(data.classes.iter().filter(|c| **c == 1).count(), POINTS / 2);
            let far = data.points.iter().map(|x| x.abs()).fold(0.0, f32::max);
            assert!((0.7..=1.0).contains(&far), "{set:?}: {far}");
            // Classes do not lie on each other: the nearest other point is mostly of the same class.
            let at = |i: usize| (data.points[2 * i], data.points[2 * i + 1]);
            let near = |i: usize| {
                let far = |j: &usize| (at(i).0 - at(*j).0).powi(2) + (at(i).1 - at(*j).1).powi(2);
                let others = (0..POINTS).filter(|j| *j != i);
                others.min_by(|a, b| far(a).total_cmp(&far(b))).unwrap()
            };
            let same = (0..POINTS).filter(|i| data.classes[*i] == data.classes[near(*i)]).count();
            assert!(same > POINTS * 19 / 20, "{set:?}: {same}");
        }
    }

    #[test]
    fn every_point_comes_once_an_epoch() {
        let mut order = Order::new(3);
        let (mut places, mut seen) = (vec![], vec![0; POINTS]);
        for step in 0..POINTS as u64 / 64 * 2 {
            order.batch(step, 64, &mut places);
            places.iter().for_each(|at| seen[*at as usize] += 1);
        }
        assert!(seen.iter().all(|n| *n == 2));
        let mut again = vec![];
        order.batch(0, 64, &mut again);
        assert_ne!(again, places);
        Order::new(3).batch(0, 64, &mut places);
        assert_eq!(again, places, "an earlier batch is found again");
    }
}
