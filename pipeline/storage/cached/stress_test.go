package cached

const stressVariable = "LSIOFS_TEST_CACHE_STRESS"

func stressChild() {}
