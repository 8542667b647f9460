//! Order of lists by numbers: one sort, whatever is sorted.
//!
//! Each sort by a key of its own is five kilobytes of code that somebody fetches to see a page. Lists that are sorted
//! where nobody waits share this one.

/// Sorts by two numbers, ascending; of equal ones the first stays first. O(n log n), and as much memory again.
pub fn sort_by_numbers<T>(items: &mut Vec<T>, numbers: impl Fn(&T) -> [u64; 2]) {
    let keyed = |(at, item): (u64, &T)| {
        let [first, second] = numbers(item);
        [first, second, at]
    };
    let mut order: Vec<[u64; 3]> = (0..).zip(items.iter()).map(keyed).collect();
    order.sort_unstable();
    let mut taken: Vec<Option<T>> = items.drain(..).map(Some).collect();
    items.extend(order.into_iter().filter_map(|[.., at]| taken[at as usize].take()));
}

/// A number by which larger ones come first.
pub fn descending(number: u64) -> u64 {
    u64::MAX - number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_stay_in_their_order() {
        let mut words = vec!["pear", "fig", "apple", "kiwi", "plum", "date", "nut"];
        sort_by_numbers(&mut words, |word| [word.len() as u64, 0]);
        assert_eq!(words, ["fig", "nut", "pear", "kiwi", "plum", "date", "apple"]);
        sort_by_numbers(&mut words, |word| {
            [descending(word.len() as u64), u64::from(word.as_bytes()[0])]
        });
        assert_eq!(words, ["apple", "date", "kiwi", "pear", "plum", "fig", "nut"]);
    }
}
