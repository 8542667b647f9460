//! Detection of an MPI launcher, without touching MPI.
//!
//! A lone process must never call `MPI_Init`: it costs half a second, and fails on machines where
//! the library is installed without its runtime.

use std::env;
use std::sync::OnceLock;

/// Variables of mpirun where ranks outnumber cores; those that let root start it are for root to set.
const CROWDED: &str = include_str!("../../../scripts/mpi.env");

/// Variables with the number of processes, in order of trust.
const SIZES: [&str; 4] = [
    "OMPI_COMM_WORLD_SIZE", // Open MPI 4 and 5
    "PMI_SIZE",             // MPICH, Intel MPI, srun --mpi=pmi2
    "MV2_COMM_WORLD_SIZE",  // MVAPICH
    "SLURM_STEP_NUM_TASKS", // srun --mpi=pmix; trusted only together with a rank
];

/// Variables that only a launcher sets.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"];

/// Number of processes that an MPI launcher started, this one included, or `None` for a process
/// started by hand. `Some(0)` means a launcher that does not tell how many: initialise MPI to
/// know. So `None | Some(1)` is alone and all else is not.
pub fn launched_by_mpi() -> Option<u32> {
    launched(|name| env::var(name).ok())
}

/// This process's number among those that an MPI launcher started, from 0, where it tells: as it was when
/// this was asked first, for MPI sets such variables too.
pub fn launched_rank() -> Option<u32> {
    static RANK: OnceLock<Option<u32>> = OnceLock::new();
    *RANK.get_or_init(|| RANKS.iter().find_map(|name| env::var(name).ok()?.trim().parse().ok()))
}

/// What mpirun is told where ranks outnumber cores.
pub fn crowded() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = CROWDED.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).filter(|(name, _)| !name.contains("AS_ROOT"))
}

fn launched(get: impl Fn(&str) -> Option<String>) -> Option<u32> {
    RANKS.iter().find_map(|name| get(name))?;
    let size = SIZES.iter().find_map(|name| get(name)?.trim().parse().ok());
    Some(size.unwrap_or(0))
}

/// Processes of this job on this machine, where the launcher tells.
#[cfg(feature = "mpi")]
pub(super) fn ranks_on_this_host() -> Option<u32> {
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"]
        .iter()
        .find_map(|name| env::var(name).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &[(&str, &str)]) -> Option<u32> {
        launched(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).into()))
    }

    #[test]
    fn who_is_root_is_not_decided_here() {
        let names: Vec<&str> = crowded().map(|(name, _)| name).collect();
        assert!(names.contains(&"OMPI_MCA_rmaps_base_oversubscribe"), "{names:?}");
        assert!(names.iter().all(|name| !name.contains("ROOT")), "{names:?}");
    }

    #[test]
    fn launchers_are_recognised() {
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")]), Some(4));
        assert_eq!(with(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), Some(2));
        assert_eq!(with(&[("PMIX_RANK", "1"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        assert_eq!(with(&[("PMIX_RANK", "1")]), Some(0));
        // Inside of a batch job, but not started by srun.
        assert_eq!(with(&[("SLURM_STEP_NUM_TASKS", "8")]), None);
    }
}
