//! Starting DPDK on hugepages, or being told how many are missing.

use dpdk_sys::{DpdkError, Eal, Mempool, PageChoice, Pages, PoolConfig, testing};

#[test]
fn huge_start_uses_hugepages_or_names_the_lack() {
    let args = testing::eal_args().pages(Pages::Huge);
    match Eal::start(&args) {
        Ok(eal) => {
            assert!(matches!(eal.pages(), PageChoice::Huge { wanted_mb: 64, free_mb: 64.. }));
            let pool = Mempool::create(&eal, &PoolConfig::new("packets", 8191)).unwrap();
            assert_eq!(pool.available(), 8191);
        }
        Err(DpdkError::Hugepages { wanted_mb: 64, free_mb }) => {
            assert!(free_mb < 64);
            // The lack was seen in time: DPDK can still start on normal pages.
            let eal = Eal::start(&args.pages(Pages::Auto)).unwrap();
            assert!(matches!(eal.pages(), PageChoice::Normal { .. }));
            println!("hugepages not tried: {}", eal.pages());
        }
        Err(error) => panic!("{error}"),
    }
}
