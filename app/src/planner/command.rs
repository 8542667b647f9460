//! Command lines that run a saved plan.

/// The command that runs the saved plan on `ranks` ranks.
pub fn command(ranks: u32) -> String {
    format!("mpirun -n {ranks} runner plan.json")
}

/// The command that also keeps what it measures, in the folder `run`.
pub fn measuring(ranks: u32) -> String {
    format!("{} --out run", command(ranks))
}
