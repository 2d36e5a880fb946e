from unnorm.cli import main

main()
